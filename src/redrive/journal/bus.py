"""The bus: who hears records, and what is done when one does not listen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.clock import SYSTEM
from ..core.context import TIMED, WATCH, clock_around, ids_around
from ..core.lock import LOCK, before_fork
from . import log

if TYPE_CHECKING:
    from .background import Background
    from .record import Record, Sink


class Subscription:
    """One sink and how it wants to hear."""

    __slots__ = ("background", "every", "sink")

    def __init__(self, sink: Sink, every: bool, background: Background | None = None) -> None:
        self.sink = sink
        self.every = every
        self.background = background


class Losses:
    """How many records were lost in this process."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        """One more."""
        with LOCK:
            self.count += 1


LOSSES = Losses()

Wrap: TypeAlias = "Callable[[str, str, Callable[..., Any]], Callable[..., Any]]"
WRAPS: list[Wrap] = []
"""What goes around the work of each durable attempt: from a kind's name, its colour and its function to another function. Asked
when a worker starts."""

SUBSCRIPTIONS: list[Subscription] = []
"""Changed under the lock, read without: whoever goes through it takes a copy."""
_logging = Subscription(log.log, every=False)


def subscribe(sink: Sink, /, *, every: bool | None = None, inline: bool = False) -> Callable[[], None]:
    """Pass every log record of this process to a sink.

    Sinks run in a thread of their own, behind a queue that drops and counts records if the sink is
    too slow. Any thread may subscribe. A forked child starts its own threads. If the sink has a
    method `attached`, it is called, and the function it returns is called at the end.

    Args:
        sink: Function of one `Record`. Its exceptions never reach your code.
        every: Also record calls that succeed at the first attempt. Default: the sink's attribute
            `every`, or False.
        inline: Call the sink in the thread where the work runs. Only for sinks that never block.

    Returns:
        A function that unsubscribes the sink.
    """
    if not callable(sink):
        raise TypeError(f"a sink must be a function of one Record, not {type(sink).__name__}: {sink!r}")
    from .background import LAST_WORDS, Background  # noqa: PLC0415  # threads and queues: not before somebody wants them

    every = bool(getattr(sink, "every", False)) if every is None else every
    attached = getattr(sink, "attached", None)
    detach = attached() if callable(attached) else None
    heard = _telling(sink)
    background = None if inline else Background(heard, LOSSES.add)
    subscription = Subscription(background or heard, every, background)
    with LOCK:
        SUBSCRIPTIONS.append(subscription)
        TIMED.append(subscription)
        if every:
            WATCH.append(subscription)

    def unsubscribe() -> None:
        with LOCK:
            if subscription not in SUBSCRIPTIONS:
                return
            SUBSCRIPTIONS.remove(subscription)
            TIMED.remove(subscription)
            if every:
                WATCH.remove(subscription)
        if background is not None:
            background.close()
        if detach is not None:
            if background is not None:
                background.flush(LAST_WORDS)  # it may have more to do with what it is going to hear
            detach()

    return unsubscribe


def flush(timeout: float = 5.0) -> bool:
    """Wait until the background sinks have received all records so far.

    Args:
        timeout: Maximum number of seconds.

    Returns:
        False if they have not in time.
    """
    clock = SYSTEM.monotonic
    end = clock() + timeout
    queued = [subscription.background for subscription in list(SUBSCRIPTIONS)]
    flushed = [background.flush(end - clock()) for background in queued if background is not None]
    return all(flushed)


def dropped() -> int:
    """Return the number of records that were lost because a sink raised or was too slow.

    Returns:
        The number. A record is counted once for each sink that lost it.
    """
    return LOSSES.count


def wanted(level: int, /) -> bool:
    """Whether anybody wants a record of this logging level: asked before one is made."""
    return bool(SUBSCRIPTIONS) or log.enabled(level)


def _telling(sink: Sink) -> Sink:
    """The sink, which says once in the log that it raised: a broken one would be silent for ever."""
    told = False

    def heard(record: Record, /) -> None:
        nonlocal told
        try:
            sink(record)
        except Exception as error:
            if not told:
                told = True
                log.complain(sink, error)
            raise

    return heard


def wanted_success() -> bool:
    """Whether anybody wants to hear of calls that succeed at once."""
    return any(subscription.every for subscription in list(SUBSCRIPTIONS))


def emit(kind: str, fields: Mapping[str, Any], /) -> None:
    """Tell everybody, without secrets. Never raises: what cannot be told is counted."""
    from .record import Record  # noqa: PLC0415  # a program in which nothing fails needs neither
    from .redaction import redacted  # noqa: PLC0415

    try:
        named = {**ids_around(), **{name: value for name, value in fields.items() if value is not None}}
        record = Record(kind, clock_around().now(), redacted(named))
    except Exception:  # a value of the user's, or a clock of a test, that raises
        LOSSES.add()
        return
    for subscription in (_logging, *SUBSCRIPTIONS):
        if kind == "success" and not subscription.every:
            continue
        try:
            subscription.sink(record)
        except Exception:  # whatever a sink does, the work goes on
            LOSSES.add()


def _load() -> None:
    from . import record, redaction  # noqa: F401, PLC0415  # what `emit` loads when it is first needed


before_fork(_load)
