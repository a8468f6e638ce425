"""Inspector: classifies one error and the errors inside it. The families of errors use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from types import FrameType, TracebackType
from typing import Any, TypeAlias

from ...fault import UNKNOWN, Fault

TIMEOUT = Fault("timeout")
THROTTLED = Fault("throttled")
NEVER_SENT = Fault("transient", sent=False)
NO_CONNECTION = Fault("timeout", sent=False)
"""The time ran out before there was a connection."""
NEVER_SENT_PERMANENT = Fault("permanent", sent=False)
TOO_MANY_CONNECTIONS = Fault("throttled", sent=False)
MAX_ERRORS = 256
"""Errors that one inspector classifies. Deeper chains and larger groups are unknown."""


class Inspector:
    """Follows an error to those that it wraps, each at most once. For one error, not shared."""

    __slots__ = ("_entry_of", "_seen", "now")

    def __init__(self, entry_of: Callable[[type], Entry], now: datetime | None) -> None:
        self._entry_of = entry_of
        self._seen: set[int] = set()
        self.now = now

    def classify(self, error: object) -> Fault:
        """Return the fault. Unknown: not an error, seen before, or not readable."""
        if not isinstance(error, Exception):
            return UNKNOWN
        if id(error) in self._seen or len(self._seen) == MAX_ERRORS:
            return UNKNOWN
        self._seen.add(id(error))
        entry = self._entry_of(type(error))
        if isinstance(entry, Fault):
            return entry
        try:
            return entry(error, self)
        except Exception:  # attributes of other libraries may be anything, and may raise
            return UNKNOWN


FaultReader: TypeAlias = Callable[[Exception, Inspector], Fault]
Entry: TypeAlias = Fault | FaultReader
"""The fault of all errors of a class, or a function that reads it from the error."""


def read(thing: object, name: str) -> Any:
    """Return an attribute of another library's object. None if it is missing or raises."""
    try:
        return getattr(thing, name, None)
    except Exception:  # a property may raise anything
        return None


def as_int(value: object) -> int | None:
    """Return a status-like value as an int. None if it is not a whole number."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def inner_error(error: object, *names: str) -> Exception | None:
    """Return the first of these attributes that is an error. `args` means its first item."""
    for name in names:
        value = read(error, name)
        if name == "args" and isinstance(value, tuple):
            value = value[0] if value else None
        if isinstance(value, Exception):
            return value
    return None


def fault_of_inner(default: Fault, *names: str) -> FaultReader:
    """Return a reader for errors that mean what the error inside them means.

    Args:
        default: The fault if the inner one is unknown.
        names: Attributes that may hold the inner error.
    """

    def read_fault(error: Exception, inspector: Inspector) -> Fault:
        inner = inspector.classify(inner_error(error, *names))
        return default if inner.kind == "unknown" else inner

    return read_fault


def connect_fault(*names: str) -> FaultReader:
    """Return a reader for errors that occur only before a request is sent.

    They are transient, unless the error inside (such as one of TLS) is permanent.
    """

    def read_fault(error: Exception, inspector: Inspector) -> Fault:
        match inspector.classify(inner_error(error, *names)).kind:
            case "permanent":
                return NEVER_SENT_PERMANENT
            case "timeout":
                return NO_CONNECTION
            case _:
                return NEVER_SENT

    return read_fault


def read_entry(entry: Entry, error: Exception, inspector: Inspector) -> Fault:
    """Return the fault of an error by its entry."""
    return entry if isinstance(entry, Fault) else entry(error, inspector)


def mark_spent(fault: Fault, layer: str) -> Fault:
    """Return the fault after another library used up its retries.

    It counts as sent, because an earlier attempt may have been executed.
    """
    return replace(fault, spent=layer, sent=True)


def frames(error: BaseException | None) -> Iterator[FrameType]:
    """Iterate over the frames of an error's traceback, the outermost first."""
    step = read(error, "__traceback__")
    while isinstance(step, TracebackType):
        yield step.tb_frame
        step = step.tb_next


def frames_of(error: BaseException | None, path: str, function: str) -> Iterator[FrameType]:
    """Iterate over those frames of an error that belong to one function of a library."""
    for frame in frames(error):
        code = frame.f_code
        if code.co_name == function and path in code.co_filename.replace("\\", "/"):
            yield frame


def loop_counts(error: BaseException | None, path: str, function: str, variable: str) -> list[int]:
    """Return the counts in a local variable of a library's retry loop, the outermost first.

    For libraries whose errors do not say how often they retried.
    """
    return [as_int(frame.f_locals.get(variable)) or 0 for frame in frames_of(error, path, function)]


def spent_if(
    was_retried: Callable[[Exception], bool], entry: Entry, library: str, /
) -> FaultReader:
    """Return a reader that classifies by the entry, and marks errors that a library retried."""

    def read_fault(error: Exception, inspector: Inspector) -> Fault:
        fault = read_entry(entry, error, inspector)
        return mark_spent(fault, library) if was_retried(error) else fault

    return read_fault


def worst_fault(faults: list[Fault]) -> Fault:
    """Return the fault of several errors together.

    It is retryable only if all are. It has the longest wait, and was sent if one was.
    """
    order = ("permanent", "unknown", "throttled", "timeout", "transient")
    if not faults:
        return UNKNOWN
    worst = min(faults, key=lambda fault: order.index(fault.kind))
    waits = [fault.after for fault in faults if fault.after is not None]
    layer = next((fault.spent for fault in faults if fault.spent), None)
    was_sent = any(fault.sent for fault in faults)
    return replace(worst, after=max(waits, default=None), sent=was_sent, spent=layer)
