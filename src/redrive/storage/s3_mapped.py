"""Errors of botocore, aiobotocore and pyarrow in our words."""

from __future__ import annotations

import re
from typing import Any

from ..core.classify import classify
from ..errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable

MISSING = frozenset(("NoSuchKey", "NotFound", "404"))
THERE = frozenset(("PreconditionFailed", "ConditionalRequestConflict", "412"))
REFUSED = frozenset(
    """AccessDenied InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken RequestTimeTooSkewed RequestExpired
    AllAccessDisabled AccountProblem 403 401""".split()
)
NO_PATH = frozenset(("KeyTooLongError", "InvalidObjectName", "XMinioInvalidObjectName"))

ARROW = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d{3})\))? during ")
UNKNOWN_TO_ARROW = re.compile(r"Unable to parse ExceptionName: (\w+)")
ARROWS = {
    "ACCESS_DENIED": "AccessDenied",
    "INVALID_ACCESS_KEY_ID": "InvalidAccessKeyId",
    "NO_SUCH_BUCKET": "NoSuchBucket",
    "REQUEST_TIME_TOO_SKEWED": "RequestTimeTooSkewed",
    "SIGNATURE_DOES_NOT_MATCH": "SignatureDoesNotMatch",
}
"""Of PyArrow's words, those that classify() does not know as passing."""


def from_s3(error: BaseException, /, *, path: str, backend: str, bucket: str) -> StorageError:
    """The error in our words; to be raised `from` it."""
    where = {"path": path, "backend": backend}
    code, said = _said(error)
    what = repr(path) if path else f"the bucket {bucket!r}"
    if code == "NoSuchBucket" or (code in MISSING and path == ""):
        return NotFound(f"{backend}: the bucket {bucket!r} is missing", **where)
    if code in MISSING:
        return NotFound(f"{backend}: file {path!r} not found", **where)
    if code in THERE:
        return AlreadyExists(f"{backend}: file {path!r} already exists", **where)
    if code in REFUSED or type(error).__name__ == "NoCredentialsError":
        return Denied(f"{backend}: {what} is not allowed: {said}", **where)
    if code in NO_PATH:
        return PathInvalid(f"{backend}: invalid path {path!r}: {said}", **where)
    if isinstance(error, Exception) and classify(error).retryable:
        return Unavailable(f"{backend}: {what} cannot be reached: {said}", **where)
    return StorageError(f"{backend}: {what}: {said}", **where)


def _said(error: BaseException) -> tuple[str | None, str]:
    """The service's code for it, and its words."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        told = response.get("Error", {})
        code = told.get("Code") or response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return str(code), f"{code}: {told.get('Message') or error}"
    if isinstance(error, FileNotFoundError):
        return "NoSuchKey", str(error)
    found = ARROW.search(str(error)) if isinstance(error, OSError) else None
    if found is not None:
        unknown = UNKNOWN_TO_ARROW.search(str(error))
        return unknown[1] if unknown else ARROWS.get(found[1], found[2]), str(error)
    return None, f"{type(error).__name__}: {error}"
