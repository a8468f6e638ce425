"""S3Client: s3fs with exactly one layer of retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ...core.policy import RetryPolicy
from ...native.aws import BOTOCORE, botocore_retries
from ..backend import import_client
from ..deadline import DeadlinePassed, time_left
from ..per_process import PerProcess

if TYPE_CHECKING:
    from s3fs import S3FileSystem

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
        from .session import SendOnceSession, create_session  # noqa: PLC0415  # needs aiobotocore

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
