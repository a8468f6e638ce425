"""pymongo (and motor, which raises its errors)."""

from __future__ import annotations

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NO_CONNECTION, THROTTLED, TIMEOUT, Entry, Look, read, whole

CODES: dict[int, Fault] = {
    **dict.fromkeys(
        # The server or its replica set is not able to serve just now, or a lock or a snapshot was not to be had.
        (6, 7, 24, 89, 91, 112, 134, 189, 246, 262, 9001, 10058, 10107, 11600, 11602, 13435, 13436),
        TRANSIENT,
    ),
    50: TIMEOUT,
    16500: THROTTLED,
}
"""By the server's code; every other one is permanent."""
LABELS = ("RetryableWriteError", "TransientTransactionError", "RetryableError")
OVERLOADED = "SystemOverloadedError"


def _operation(error: Exception, look: Look) -> Fault:
    """By the labels that the server puts on an error, else by its code."""
    labelled = read(error, "has_error_label")
    if callable(labelled):
        if labelled(OVERLOADED):
            return THROTTLED
        if any(labelled(label) for label in LABELS):
            return TRANSIENT
    code = whole(read(error, "code"))
    return UNKNOWN if code is None else CODES.get(code, PERMANENT)


_PERMANENT = """ConfigurationError InvalidURI InvalidOperation InvalidName CollectionInvalid DuplicateKeyError WriteError
EncryptionError DocumentTooLarge""".split()
KNOWN: dict[str, Entry] = {
    "pymongo.PyMongoError": UNKNOWN,
    "pymongo.ConnectionFailure": TRANSIENT,
    "pymongo.AutoReconnect": TRANSIENT,
    "pymongo.ServerSelectionTimeoutError": NO_CONNECTION,
    "pymongo.WaitQueueTimeoutError": NO_CONNECTION,
    "pymongo.NetworkTimeout": TIMEOUT,
    "pymongo.ExecutionTimeout": TIMEOUT,
    "pymongo.WTimeoutError": TIMEOUT,
    "pymongo.OperationFailure": _operation,
    **{f"pymongo.{name}": PERMANENT for name in _PERMANENT},
    "bson.BSONError": PERMANENT,
}
