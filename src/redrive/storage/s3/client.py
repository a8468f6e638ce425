"""S3Client: s3fs with exactly one layer of retries.

Its sessions of aiobotocore make one send per attempt, and have a timeout for sending. Errors of S3
become storage errors.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.handlers import add_expect_header
from botocore.utils import parse_timestamp

from ...core.classification.classify import classify
from ...core.policy import RetryPolicy
from ...errors import Denied, NotFound, PathInvalid, StorageError, Unavailable
from ...native.aws import BOTOCORE, botocore_retries
from ..backend import import_client
from ..deadline import DeadlinePassed, PerProcess, time_left
from ..errors import file_exists, file_not_found

if TYPE_CHECKING:
    from s3fs import S3FileSystem

MISSING_CODES = frozenset(("NoSuchKey", "NotFound", "404"))
EXISTS_CODES = frozenset(("PreconditionFailed", "ConditionalRequestConflict", "412"))
DENIED_CODES = frozenset(
    (
        "AccessDenied",
        "AccountProblem",
        "AllAccessDisabled",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "401",
        "403",
    )
)
INVALID_PATH_CODES = frozenset(("KeyTooLongError", "InvalidObjectName", "XMinioInvalidObjectName"))

ARROW_ERROR = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d{3})\))? during ")
ARROW_UNKNOWN_CODE = re.compile(r"Unable to parse ExceptionName: (\w+)")
CODE_BY_ARROW_NAME = {
    "ACCESS_DENIED": "AccessDenied",
    "INVALID_ACCESS_KEY_ID": "InvalidAccessKeyId",
    "NO_SUCH_BUCKET": "NoSuchBucket",
    "REQUEST_TIME_TOO_SKEWED": "RequestTimeTooSkewed",
    "SIGNATURE_DOES_NOT_MATCH": "SignatureDoesNotMatch",
}
"""S3 codes by PyArrow's names, for errors that `classify` does not know as transient."""


def from_s3(error: BaseException, /, *, path: str, backend: str, bucket: str) -> StorageError:
    """Return the storage error for an error of a client. Raise it `from` the original error."""
    where = {"path": path, "backend": backend}
    code, reason = _code_and_reason(error)
    subject = repr(path) if path else f"the bucket {bucket!r}"
    if code == "NoSuchBucket" or (code in MISSING_CODES and path == ""):
        return NotFound(f"{backend}: the bucket {bucket!r} is missing", **where)
    if code in MISSING_CODES:
        return file_not_found(path, backend)
    if code in EXISTS_CODES:
        return file_exists(path, backend)
    if code in DENIED_CODES or type(error).__name__ == "NoCredentialsError":
        return Denied(f"{backend}: {subject} is not allowed: {reason}", **where)
    if code in INVALID_PATH_CODES:
        return PathInvalid(f"{backend}: invalid path {path!r}: {reason}", **where)
    if isinstance(error, Exception) and classify(error).retryable:
        return Unavailable(f"{backend}: {subject} cannot be reached: {reason}", **where)
    return StorageError(f"{backend}: {subject}: {reason}", **where)


def _code_and_reason(error: BaseException) -> tuple[str | None, str]:
    """Return the error code of S3, if any, and a description."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        details = response.get("Error", {})
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code = details.get("Code") or status
        return str(code), f"{code}: {details.get('Message') or error}"
    if isinstance(error, FileNotFoundError):
        return "NoSuchKey", str(error)
    arrow_error = ARROW_ERROR.search(str(error)) if isinstance(error, OSError) else None
    if arrow_error is not None:
        unknown = ARROW_UNKNOWN_CODE.search(str(error))
        name, status = arrow_error.groups()
        return unknown[1] if unknown else CODE_BY_ARROW_NAME.get(name, status), str(error)
    return None, f"{type(error).__name__}: {error}"


class SendOnceSession(AIOHTTPSession):  # type: ignore[misc]  # published without types
    """An HTTP session that sends each request once, and limits the time of sending.

    After a reset, aiohttp repeats GET, HEAD, PUT and DELETE without being asked. It has no public
    option against that. A test counts requests on the wire, and fails if the private one is gone.

    The read timeout of aiohttp begins when the request is sent. Without a limit for sending, a
    server that stops reading would block an upload forever.
    """

    _connector_args: dict[str, Any]

    async def _get_session(self, proxy_url: Any) -> Any:
        limit = self._timeout.sock_read
        if limit and "socket_factory" not in self._connector_args and _has_socket_factory():
            self._connector_args = {
                **self._connector_args,
                "socket_factory": sockets_with_send_timeout(limit),
            }
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


@cache
def _has_socket_factory() -> bool:
    """Return whether aiohttp takes a socket factory, as it does since 3.12."""
    connector = import_client("aiohttp", "s3").TCPConnector
    return "socket_factory" in inspect.signature(connector).parameters


def sockets_with_send_timeout(seconds: float, /) -> Callable[[Any], socket.socket]:
    """Return a factory of sockets that fail if the server accepts no bytes for this time.

    On systems without TCP_USER_TIMEOUT the sockets have no limit.
    """
    option: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)

    def create_socket(address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        created = socket.socket(family, kind, protocol)
        if option is not None:
            created.setsockopt(socket.IPPROTO_TCP, option, max(1, int(seconds * 1000)))
        return created

    return create_socket


def create_session(*, expect_continue: bool) -> AioSession:
    """Create a session. It finds credentials as botocore does.

    Without expect_continue it sends bodies without asking the server first. aiohttp would wait for
    the answer to `Expect: 100-continue` without a limit.
    """
    session = AioSession()
    if not expect_continue:
        session.unregister("before-call.s3", add_expect_header)
    parsers = session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=read_timestamp)
    return session


def read_timestamp(value: Any, /) -> datetime:
    """Parse a timestamp. The parser of botocore would take most of the time of a listing."""
    if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    timestamp: datetime = parse_timestamp(value)
    return timestamp


LOG = logging.getLogger("redrive.storage")
T = TypeVar("T")


class S3Client:
    """Calls of the S3 API, through s3fs. Threads may share it. A forked child connects again.

    With a policy, only botocore retries: the loop of s3fs around each call is off, and so is
    aiohttp, which repeats an idempotent request after a reset. Without a policy, all three keep
    their defaults. The options are arguments of `S3FileSystem`.
    """

    def __init__(self, options: Mapping[str, Any], retry: RetryPolicy | None) -> None:
        self._options = merge_retry_policy(options, retry)
        self._has_policy = retry is not None
        self._filesystem: PerProcess[S3FileSystem] = PerProcess()

    def call(self, method: str, /, **arguments: Any) -> Any:
        """Call a method of the S3 API, named as in botocore. Raises errors of botocore."""
        return _wait_until_deadline(lambda: self.start(method, **arguments))

    def start(self, method: str, /, **arguments: Any) -> Future[Any]:
        """Start a call, and return its future. Cancelling the future cancels the call."""
        filesystem = self._filesystem.get(self._connect)
        coroutine = _call_method(filesystem, method, arguments)
        return asyncio.run_coroutine_threadsafe(coroutine, filesystem.loop)

    def read(self, body: Any, size: int) -> bytes:
        """Read this number of bytes from the body of a response, or fewer at the end."""
        loop = self._filesystem.get(self._connect).loop
        return _wait_until_deadline(
            lambda: asyncio.run_coroutine_threadsafe(_read_body(body, size), loop)
        )

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        filesystem = self._filesystem.pop()
        if filesystem is not None:
            import_client("fsspec.asyn", "s3").sync(filesystem.loop, filesystem.s3.close)

    def _connect(self) -> S3FileSystem:
        s3fs = import_client("s3fs", "s3")
        # needs aiobotocore

        options = dict(self._options)
        config = options["config_kwargs"]
        if self._has_policy and "http_session_cls" not in config:
            options["config_kwargs"] = config | {"http_session_cls": SendOnceSession}
        filesystem: S3FileSystem = s3fs.S3FileSystem(
            **options,
            session=create_session(expect_continue=not self._has_policy),
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        if self._has_policy:
            filesystem.retries = 1  # On the object: the class belongs to all users of s3fs.
        filesystem.close_session = _close_session
        return filesystem


def merge_retry_policy(options: Mapping[str, Any], retry: RetryPolicy | None) -> dict[str, Any]:
    """Return arguments of `S3FileSystem` with the policy in the `retries` of botocore's Config."""
    config = dict(options.get("config_kwargs") or {})
    if "config" in (options.get("client_kwargs") or {}):
        fix = "s3fs makes it; give its arguments as config_kwargs"
        raise TypeError(f"client_kwargs cannot hold a botocore Config: {fix}")
    if retry is not None:
        BOTOCORE.check(retry)
        replaced = config.get("retries")
        if replaced:
            LOG.debug("config_kwargs['retries'] = %r gives way to %r", replaced, retry)
        config["retries"] = {**(replaced or {}), **botocore_retries(retry)}
        # The same limit with another meaning. botocore would use one of the two.
        config["retries"].pop("max_attempts", None)
        BOTOCORE.to_mapped(retry, config)  # Logs the fields that are not supported.
    return {**options, "config_kwargs": config}


def wait_or_cancel(future: Future[T], /, timeout: float | None = None) -> T:
    """Return the result of a call. Cancel the call on a timeout or an interrupt (Ctrl+C)."""
    try:
        return future.result(timeout)
    except BaseException:
        future.cancel()
        raise


def result_until_deadline(future: Future[T], /) -> T:
    """Return the result of a started call. Cancel it and raise DeadlinePassed at the deadline."""
    try:
        return wait_or_cancel(future, time_left())
    except TimeoutError:
        if future.cancelled() or not future.done():
            raise DeadlinePassed from None
        raise


def _wait_until_deadline(start: Callable[[], Future[T]], /) -> T:
    time_left()  # Raises before the call starts if the deadline has passed.
    return result_until_deadline(start())


def _close_session(loop: asyncio.AbstractEventLoop | None, session: Any) -> None:
    """Close a session on its own event loop when its file system is garbage collected.

    The original would close it on the running loop of the thread that drops the last reference.
    It would leave a task there.
    """
    if loop is not None and loop.is_running():
        loop.call_soon_threadsafe(lambda: loop.create_task(session.__aexit__(None, None, None)))
    else:
        import_client("s3fs", "s3").S3FileSystem.close_session(None, session)


async def _call_method(filesystem: S3FileSystem, method: str, arguments: Mapping[str, Any]) -> Any:
    try:
        return await filesystem._call_s3(method, **arguments)
    except OSError as error:
        # s3fs turns botocore's errors into OSErrors, which have less information.
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise


async def _read_body(body: Any, size: int) -> bytes:
    pieces: list[bytes] = []
    count = 0
    while count < size:
        piece = await body.read(size - count)
        if not piece:
            break
        pieces.append(piece)
        count += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
