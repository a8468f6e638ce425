"""Storage errors for responses of Graph, and the rule that retries them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.classification.classify import classify
from ...core.classification.known.http_responses import fault_of_status, retry_after
from ...core.fault import Fault
from ...errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
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
