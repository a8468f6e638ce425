"""Look: one look at one error and at the errors inside it. What every family of errors uses to say what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from types import FrameType, TracebackType
from typing import Any, TypeAlias

from ..fault import UNKNOWN, Fault

TIMEOUT = Fault("timeout")
THROTTLED = Fault("throttled")
NEVER_SENT = Fault("transient", sent=False)
NO_CONNECTION = Fault("timeout", sent=False)
"""Time ran out before there was a connection to send anything on."""
NEVER_SENT_PERMANENT = Fault("permanent", sent=False)
MOST_ERRORS = 256
"""How many errors one look goes through; deeper chains and larger groups are unknown."""


class Look:
    """Goes from an error into those that it wraps, each at most once. Made for one error, and not shared."""

    __slots__ = ("_entry", "_seen", "now")

    def __init__(self, entry: Callable[[type], Entry], now: datetime | None) -> None:
        self._entry = entry
        self._seen: set[int] = set()
        self.now = now

    def at(self, error: object) -> Fault:
        """What this error means; unknown where there is none, where it was seen before, and where it cannot be read."""
        if not isinstance(error, Exception) or id(error) in self._seen or len(self._seen) == MOST_ERRORS:
            return UNKNOWN
        self._seen.add(id(error))
        entry = self._entry(type(error))
        if isinstance(entry, Fault):
            return entry
        try:
            return entry(error, self)
        except Exception:  # foreign attributes may be anything: a property that raises, a mock, a wrong type
            return UNKNOWN


Judge: TypeAlias = Callable[[Exception, Look], Fault]
Entry: TypeAlias = Fault | Judge


def read(thing: object, name: str) -> Any:
    """An attribute of a foreign object; None where it is missing or raises."""
    try:
        return getattr(thing, name, None)
    except Exception:  # a foreign property may raise anything
        return None


def whole(value: object) -> int | None:
    """A plain int out of a status-like value, else None."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def beneath(error: object, *names: str) -> Exception | None:
    """The first of these attributes that holds an error; `args` means the first argument."""
    for name in names:
        value = read(error, name)
        if name == "args" and isinstance(value, tuple):
            value = value[0] if value else None
        if isinstance(value, Exception):
            return value
    return None


def wrapping(default: Fault, *names: str) -> Judge:
    """A judge for errors that mean what the error inside them means, or the default where that is unknown."""

    def judge(error: Exception, look: Look) -> Fault:
        inner = look.at(beneath(error, *names))
        return default if inner.kind == "unknown" else inner

    return judge


def connecting(*names: str) -> Judge:
    """A judge for errors that only arise before a request is sent: transient, unless TLS or the like says permanent."""

    def judge(error: Exception, look: Look) -> Fault:
        match look.at(beneath(error, *names)).kind:
            case "permanent":
                return NEVER_SENT_PERMANENT
            case "timeout":
                return NO_CONNECTION
            case _:
                return NEVER_SENT

    return judge


def spent(fault: Fault, layer: str) -> Fault:
    """The same, after a foreign layer has used up its retries: an earlier attempt of its may have been executed."""
    return replace(fault, spent=layer, sent=True)


def frames(error: BaseException | None) -> Iterator[FrameType]:
    """The frames that an error passed through, the outermost first."""
    step = read(error, "__traceback__")
    while isinstance(step, TracebackType):
        yield step.tb_frame
        step = step.tb_next


def passed(error: BaseException | None, path: str, function: str) -> Iterator[FrameType]:
    """Those frames of an error that belong to one function of one library."""
    for frame in frames(error):
        if frame.f_code.co_name == function and path in frame.f_code.co_filename.replace("\\", "/"):
            yield frame


def worst(faults: list[Fault]) -> Fault:
    """What several errors at once mean: retryable only if all are; the longest wait; sent if one was."""
    order = ("permanent", "unknown", "throttled", "timeout", "transient")
    if not faults:
        return UNKNOWN
    first = min(faults, key=lambda fault: order.index(fault.kind))
    waits = [fault.after for fault in faults if fault.after is not None]
    layer = next((fault.spent for fault in faults if fault.spent), None)
    return replace(first, after=max(waits, default=None), sent=any(fault.sent for fault in faults), spent=layer)
