"""Failure: answers of Graph in our words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.fault import Fault
from ...core.known.status import by_status
from ...core.retry_after import retry_after
from ...errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
from ..carried import carried

if TYPE_CHECKING:
    import httpx2

AGAIN = frozenset((429, 500, 502, 503, 504))
"""Statuses after which the same request may pass."""
KINDS: dict[int, tuple[type[StorageError], str]] = {
    401: (Denied, "the token was rejected, also after one refresh ({said})"),
    403: (Denied, "{what} is not allowed ({said})"),
    404: (NotFound, "file {what} not found ({said})"),
    409: (AlreadyExists, "file {what} already exists ({said})"),
    412: (AlreadyExists, "{what} has changed in between ({said})"),
    423: (Denied, "{what} is locked by another program ({said})"),
    507: (StorageError, "no space for {what} ({said})"),
}


class Answered(Exception):
    """An answer after which the request may be tried again. It carries no address: those can be keys to a file."""

    def __init__(self, status: int, said: str, after: float | None) -> None:
        super().__init__(f"{status} {said}".rstrip())
        self.fault = by_status(status, after)


def meaning(error: Exception) -> Fault | bool:
    """The rule of the retries: an answer by its status; the network as everywhere; nothing else."""
    if isinstance(error, Answered):
        return error.fault
    from ...core.classify import classify  # noqa: PLC0415  # loaded at the first failure

    return classify(error) if type(error).__module__.partition(".")[0] in ("httpx2", "httpcore2") else False


def answered(response: httpx2.Response) -> Answered:
    """The answer as an error to be tried again."""
    return Answered(response.status_code, code(response), retry_after(response.headers))


def failed(response: httpx2.Response, /, *, path: str, backend: str) -> StorageError:
    """An answer that is no success, in our words."""
    kind, words = KINDS.get(response.status_code, (StorageError, "{what}: Graph responded with {said}"))
    said = f"{response.status_code} {code(response)}".rstrip()
    if response.status_code == 404 and not path:
        words = "drive not found ({said})"
    return kind(f"{backend}: " + words.format(what=repr(path) if path else "the drive", said=said), path=path, backend=backend)


def unreachable(error: Exception, /, *, path: str, backend: str) -> Unavailable:
    """What is left when trying again did not help."""
    said = str(error) if isinstance(error, Answered) else type(error).__name__
    what = f" for {path!r}" if path else ""
    ours = Unavailable(f"{backend}: Graph cannot be reached{what}: {said}", path=path, backend=backend)
    return carried(ours, error)


def code(response: httpx2.Response) -> str:
    """The service's own word for what happened."""
    content = fields(response)
    error = content.get("error")
    if isinstance(error, dict):
        return str(error.get("code", ""))[:80]
    return str(error)[:80] if isinstance(error, str) else ""


def fields(response: httpx2.Response) -> dict[str, Any]:
    """The JSON object in an answer; empty where there is none."""
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
