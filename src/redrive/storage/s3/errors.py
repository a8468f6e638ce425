"""Storage errors for the errors of botocore, aiobotocore and PyArrow."""

from __future__ import annotations

import re
from typing import Any

from ...core.classification.classify import classify
from ...errors import Denied, NotFound, PathInvalid, StorageError, Unavailable
from ..errors import file_exists, file_not_found

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
