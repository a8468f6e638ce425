"""Errors of azure-core in our words."""

from __future__ import annotations

from ..core.classify import classify
from ..errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable

NO_CONTAINER = frozenset(("ContainerNotFound", "ContainerBeingDeleted"))
THERE = frozenset(("BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite"))
NO_PATH = frozenset(("InvalidUri", "InvalidResourceName", "OutOfRangeInput"))


def from_azure(error: BaseException, /, *, path: str, backend: str, container: str) -> StorageError:
    """The error in our words; to be raised `from` it."""
    where = {"path": path, "backend": backend}
    told = getattr(error, "error_code", None) or ""
    code = str(getattr(told, "value", told))  # an enumeration, or plain text where it is not listed there
    status = getattr(error, "status_code", None)
    said = _said(error, code)
    what = repr(path) if path else f"the container {container!r}"
    if code in NO_CONTAINER or (status == 404 and path == ""):
        return NotFound(f"{backend}: the container {container!r} is missing", **where)
    if status == 404:
        return NotFound(f"{backend}: file {path!r} not found", **where)
    if code in THERE or status == 412:
        return AlreadyExists(f"{backend}: file {path!r} already exists", **where)
    if status in (401, 403) or code.startswith("Lease"):
        return Denied(f"{backend}: {what} is not allowed: {said}", **where)
    if code in NO_PATH:
        return PathInvalid(f"{backend}: invalid path {path!r}: {said}", **where)
    if isinstance(error, Exception) and classify(error).retryable:
        return Unavailable(f"{backend}: {what} cannot be reached: {said}", **where)
    return StorageError(f"{backend}: {what}: {said}", **where)


def _said(error: BaseException, code: str) -> str:
    """Its first line: azure adds request ids, times and XML."""
    first = str(error).partition("\n")[0].strip()
    return f"{code}: {first}" if code else f"{type(error).__name__}: {first}"
