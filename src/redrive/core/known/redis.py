"""redis-py, and valkey-py that came from it."""

from __future__ import annotations

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .look import NEVER_SENT, NO_CONNECTION, TIMEOUT, Entry, Judge, Look, beneath, passed, spent, whole

PASSING = ("BUSY ", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "FAILOVER")
"""How answers begin that are not about the command, but about the server's present state."""


def _connection(error: Exception, look: Look) -> Fault:
    """Never sent where a refusal or a missing name is behind it: those only come up while connecting."""
    return NEVER_SENT if not look.at(beneath(error, "__cause__", "__context__")).sent else TRANSIENT


def _timeout(error: Exception, look: Look) -> Fault:
    return NO_CONNECTION if str(error).startswith("Timeout connecting") else TIMEOUT


def _answer(error: Exception, look: Look) -> Fault:
    return TRANSIENT if str(error).startswith(PASSING) else PERMANENT


def _counted(entry: Entry, library: str) -> Judge:
    """redis-py 6 and later retries three times unless told otherwise; only the frame of its loop has the count."""

    def judge(error: Exception, look: Look) -> Fault:
        fault = entry if isinstance(entry, Fault) else entry(error, look)
        counts = [frame.f_locals.get("failures") for frame in passed(error, f"{library}/", "call_with_retry")]
        return spent(fault, library) if any((whole(count) or 0) > 1 for count in counts) else fault

    return judge


_ERRORS: dict[str, Entry] = {
    "ConnectionError": _connection,
    "TimeoutError": _timeout,
    "BusyLoadingError": TRANSIENT,
    "MaxConnectionsError": NEVER_SENT,
    "ClusterDownError": TRANSIENT,
    "ReadOnlyError": TRANSIENT,
    "OutOfMemoryError": TRANSIENT,
    "TryAgainError": TRANSIENT,
    "AskError": TRANSIENT,
    "WatchError": TRANSIENT,
    "InvalidResponse": TRANSIENT,
}
_FINAL: dict[str, Entry] = {
    "AuthenticationError": PERMANENT,
    "AuthorizationError": PERMANENT,
    "NoPermissionError": PERMANENT,
    "ResponseError": _answer,
    "DataError": PERMANENT,
    "LockNotOwnedError": PERMANENT,
    "RedisError": UNKNOWN,
    "ValkeyError": UNKNOWN,
}
KNOWN: dict[str, Entry] = {
    f"{library}.{name}": entry
    for library in ("redis", "valkey")
    for name, entry in ({name: _counted(entry, library) for name, entry in _ERRORS.items()} | _FINAL).items()
}
