"""GraphClient: sends every request, with its retries and its token. Addresses of drive items.

Responses become storage errors here, and a rule says which of them are retried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ...core.classification.classify import classify
from ...core.classification.known.http_responses import fault_of_status, retry_after
from ...core.fault import Fault
from ...core.policy import RetryPolicy
from ...engine.attempt import current
from ...engine.retry import retry
from ...errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable
from ..backend import import_client
from ..deadline import DeadlinePassed, ForkSafeLock, PerProcess, time_left
from ..errors import copy_outcome

if TYPE_CHECKING:
    import httpx2

RETRYABLE_STATUSES = frozenset((429, 500, 502, 503, 504))
MAX_CODE_CHARS = 80
ERROR_BY_STATUS: dict[int, tuple[type[StorageError], str]] = {
    401: (Denied, "the token was rejected, also after one refresh ({reason})"),
    403: (Denied, "{subject} is not allowed ({reason})"),
    404: (NotFound, "file {subject} not found ({reason})"),
    409: (AlreadyExists, "file {subject} already exists ({reason})"),
    412: (AlreadyExists, "{subject} has changed in between ({reason})"),
    423: (Denied, "{subject} is locked by another program ({reason})"),
    507: (StorageError, "no space for {subject} ({reason})"),
}
OTHER_STATUS = (StorageError, "{subject}: Graph responded with {reason}")


class RetryableResponse(Exception):
    """A response after which the request may be retried.

    It has no URL: some URLs of Graph give access to a file.
    """

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(status_and_code(response))
        self.fault = fault_of_status(response.status_code, retry_after(response.headers))


def retry_rule(error: Exception) -> Fault | bool:
    """Classify an error for retries: by the status of a response, or as an error of the network."""
    if isinstance(error, RetryableResponse):
        return error.fault
    package = type(error).__module__.partition(".")[0]
    return classify(error) if package in ("httpx2", "httpcore2") else False


def from_response(response: httpx2.Response, /, *, path: str, backend: str) -> StorageError:
    """Return the storage error for an unsuccessful response."""
    error_class, template = ERROR_BY_STATUS.get(response.status_code, OTHER_STATUS)
    if response.status_code == 404 and not path:
        template = "drive not found ({reason})"
    subject = repr(path) if path else "the drive"
    message = template.format(subject=subject, reason=status_and_code(response))
    return error_class(f"{backend}: {message}", path=path, backend=backend)


def from_spent_retries(error: Exception, /, *, path: str, backend: str) -> Unavailable:
    """Return the storage error for a request whose retries are spent."""
    reason = str(error) if isinstance(error, RetryableResponse) else type(error).__name__
    subject = f" for {path!r}" if path else ""
    message = f"{backend}: Graph cannot be reached{subject}: {reason}"
    return copy_outcome(Unavailable(message, path=path, backend=backend), error)


def status_and_code(response: httpx2.Response) -> str:
    """Return the status of a response, with the error code of the service if it has one."""
    error = json_object(response).get("error")
    code = ""
    if isinstance(error, dict):
        code = str(error.get("code", ""))
    elif isinstance(error, str):
        code = error
    return f"{response.status_code} {code[:MAX_CODE_CHARS]}".rstrip()


def json_object(response: httpx2.Response) -> dict[str, Any]:
    """Return the JSON object of a response. Empty if it has none."""
    try:
        content = response.json()
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


DEFAULT_POLICY = RetryPolicy()
MAX_PATH_CHARS = 400
"""Characters of a path that OneDrive and SharePoint accept."""
_INVALID_CHARACTER = re.compile(r'["*:<>?\\|]')
_RESERVED_NAME = re.compile(
    r"(?i)\A(?:con|prn|aux|nul|com\d|lpt\d|desktop\.ini|\.lock|_vti_|~\$.*)\Z"
)


# ---- addresses ----


@dataclass(frozen=True, slots=True)
class DriveAddress:
    """URLs of the items of a drive."""

    base: str
    """URL of the service: `https://graph.microsoft.com/v1.0`."""
    drive: str
    """`me/drive`, `drives/ID` or `sites/ID/drive`."""

    def item(self, path: str, part: str = "") -> str:
        """Return the URL of an item, or of a part: its content, its children, an action."""
        root = f"{self.base}/{self.drive}/root"
        if not path:
            return f"{root}/{part}" if part else root
        quoted = "/".join(quote(name, safe="") for name in path.split("/"))
        return f"{root}:/{quoted}:/{part}" if part else f"{root}:/{quoted}"

    def item_by_id(self, item_id: str, part: str = "") -> str:
        """Return the URL of an item by its id.

        The id does not change if the item is moved. So a move can be repeated.
        """
        url = f"{self.base}/{self.drive}/items/{quote(item_id, safe='')}"
        return f"{url}/{part}" if part else url

    def is_of_service(self, url: str) -> bool:
        """Return whether a URL belongs to the service. Only then it may get the token."""
        service, other = urlsplit(self.base), urlsplit(url)
        return (service.scheme, service.netloc) == (other.scheme, other.netloc)


def check_drive_path(path: str, backend: str) -> None:
    """Raise PathInvalid if a drive cannot hold this path."""
    problem = drive_path_problem(path)
    if problem is not None:
        message = f"{backend}: invalid path {path!r}: {problem}"
        raise PathInvalid(message, path=path, backend=backend)


def drive_path_problem(path: str) -> str | None:
    """Return why a drive cannot hold this path. None if it can."""
    if len(path) > MAX_PATH_CHARS:
        return f"it is {len(path):,} characters long, and a drive takes {MAX_PATH_CHARS}"
    for name in path.split("/"):
        invalid = _INVALID_CHARACTER.search(name)
        if invalid:
            return f"{invalid[0]} is not allowed in the name of an item"
        if name != name.strip() or name.endswith("."):
            return f"the name {name!r} begins or ends with a space, or ends with a dot"
        if _RESERVED_NAME.match(name):
            return f"{name!r} is a name that a drive keeps for itself"
    return None


# ---- tokens ----


class TokenCache:
    """A bearer token, kept until the service rejects it.

    Threads may share it. If several are rejected at the same time, one fetches a new token.
    """

    def __init__(self, fetch: Callable[[], str]) -> None:
        self._fetch = fetch
        self._lock = ForkSafeLock()
        self._token: str | None = None

    def get(self, rejected: str | None = None) -> str:
        """Return the token, or a new one if the current token is the rejected one."""
        with self._lock.of_this_process():
            if self._token is None or self._token == rejected:
                self._token = None
                self._token = self._fetch()
            return self._token

    def __repr__(self) -> str:
        return "<TokenCache>"


# ---- requests ----


class GraphClient:
    """Sends requests. Each is retried by the policy. Redirects are not followed.

    It uses the transport of httpx2 without its client, which logs whole URLs: some URLs of Graph
    give access to a file. Threads may share it. A forked child connects again.
    """

    def __init__(
        self,
        address: DriveAddress,
        tokens: TokenCache,
        *,
        policy: RetryPolicy | None,
        timeout: float,
        proxy: str | None,
        name: str,
    ) -> None:
        self.address = address
        self.policy = policy or DEFAULT_POLICY
        self.name = name
        self._tokens = tokens
        self._timeout = timeout
        self._proxy = proxy
        self._retrying = retry(
            self.policy, on=retry_rule, attempt_timeout=None, operation=f"storage.{name}"
        )
        self._transport: PerProcess[httpx2.HTTPTransport] = PerProcess()

    def send(
        self, method: str, url: str, path: str, /, *, authorized: bool = True, **content: Any
    ) -> httpx2.Response:
        """Send a request with retries, and return the response with its body.

        An authorized request has the token, which only the service itself may get.
        """
        if authorized and not self.address.is_of_service(url):
            problem = f"Graph sends us to {_without_query(url)}, where the token must not go"
            raise Denied(f"{self.name}: {problem}", path=path, backend=self.name)
        return self._call_retrying(
            path, lambda: _read(self._attempt(method, url, path, authorized, content))
        )

    def stream(self, url: str, path: str, /, headers: Mapping[str, str]) -> httpx2.Response:
        """Send a GET without the token. The caller reads and closes the response."""
        content = {"headers": headers}
        return self._call_retrying(path, lambda: self._attempt("GET", url, path, False, content))

    def send_once(self, method: str, url: str, /, **content: Any) -> httpx2.Response:
        """Send a request without the token and without retries, for callers that retry."""
        return _read(self._transmit(method, url, None, content))

    def close(self) -> None:
        """Close all connections. The next request opens them again."""
        transport = self._transport.pop()
        if transport is not None:
            transport.close()

    def _call_retrying(self, path: str, attempt: Callable[[], httpx2.Response]) -> httpx2.Response:
        try:
            return self._retrying.call(attempt)
        except Exception as error:
            if retry_rule(error) is False:
                raise
            raise from_spent_retries(error, path=path, backend=self.name) from error

    def _attempt(
        self, method: str, url: str, path: str, authorized: bool, content: Mapping[str, Any]
    ) -> httpx2.Response:
        token = self._token(path) if authorized else None
        response = self._transmit(method, url, token, content)
        if response.status_code == 401 and token is not None:
            response.close()
            # One refresh of the token, which does not count as an attempt.
            response = self._transmit(method, url, self._token(path, rejected=token), content)
        if response.status_code in RETRYABLE_STATUSES:
            raise RetryableResponse(_read(response))
        response.extensions["attempt"] = current().number
        return response

    def _token(self, path: str, rejected: str | None = None) -> str:
        try:
            return self._tokens.get(rejected)
        except StorageError:
            raise
        except Exception as error:
            message = f"{self.name}: no token could be had: {type(error).__name__}"
            raise Denied(message, path=path, backend=self.name) from error

    def _transmit(
        self, method: str, url: str, token: str | None, content: Mapping[str, Any]
    ) -> httpx2.Response:
        module = import_client("httpx2", "graph")
        remaining = current().remaining
        seconds = self._timeout if remaining is None else min(self._timeout, remaining)
        timeout = module.Timeout(seconds).as_dict()
        request = module.Request(method, url, extensions={"timeout": timeout}, **content)
        if token is not None:
            request.headers["authorization"] = f"Bearer {token}"
        response: httpx2.Response = self._transport.get(self._open_transport).handle_request(
            request
        )
        response.stream = _deadline_stream_class(module)(response.stream)
        return response

    def _open_transport(self) -> httpx2.HTTPTransport:
        transport: httpx2.HTTPTransport = import_client("httpx2", "graph").HTTPTransport(
            proxy=self._proxy
        )
        return transport


@cache
def _deadline_stream_class(httpx2: Any) -> Any:
    """Return a class of response bodies that end at the deadline around the call.

    Without it, a server that sends a few bytes at a time would never reach the read timeout. The
    class is created once: a class for each response would keep the response in memory until the
    garbage collector runs.
    """

    class DeadlineStream(httpx2.SyncByteStream):  # type: ignore[misc]  # imported at first use
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __iter__(self) -> Iterator[bytes]:
            for piece in self._stream:
                yield piece
                try:
                    time_left()
                except DeadlinePassed as passed:
                    raise httpx2.ReadTimeout(str(passed)) from passed

        def close(self) -> None:
            self._stream.close()

    return DeadlineStream


def _read(response: httpx2.Response) -> httpx2.Response:
    try:
        response.read()
    finally:
        response.close()
    return response


def _without_query(url: str) -> str:
    """Return a URL for messages. The query of such a URL gives access to the file."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
