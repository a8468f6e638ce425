"""The journal's bus: `emit` passes each record to the logging sink and to all subscribed sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.clock import SYSTEM
from ..core.context import CLOCK_USERS, SLOW_PATH_USERS, clock_around, ids_around
from ..core.lock import LOCK, before_fork
from .sinks import logging as logging_sink

if TYPE_CHECKING:
    from .record import Record, Sink
    from .sinks.background import BackgroundSink


class Subscription:
    """A subscribed sink and its options."""

    __slots__ = ("background", "every", "sink")

    def __init__(self, sink: Sink, every: bool, background: BackgroundSink | None = None) -> None:
        self.sink = sink
        self.every = every
        self.background = background


class DropCounter:
    """Counts the records that this process lost. Threads may share it."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def increment(self) -> None:
        """Count one more lost record."""
        with LOCK:
            self.count += 1


DROPS = DropCounter()

Describe: TypeAlias = "Callable[[Any], Mapping[str, str]]"
"""Returns the attributes of an attempt in traces, from the lease of its job."""
AttemptWrapper: TypeAlias = (
    "Callable[[str, str, Callable[..., Any], Describe | None], Callable[..., Any]]"
)
"""Wraps a job's function. Arguments: job type, `thread`, `async` or `transaction`, the function,
and its attributes."""
ATTEMPT_WRAPPERS: list[AttemptWrapper] = []
"""Wrappers around each attempt of a job. A worker applies them when it starts."""
HandlerWrapper: TypeAlias = (
    "Callable[[str, bool, Callable[..., Any], Mapping[str, str]], Callable[..., Any]]"
)
"""Wraps a handler that is called without a job. Arguments: its name, whether it is async, the
function, and the attributes of its source."""
HANDLER_WRAPPERS: list[HandlerWrapper] = []
"""Wrappers around each direct call of a handler. A reader applies them to new handlers."""

SUBSCRIPTIONS: list[Subscription] = []
"""Changed under the lock, and read without it. Iterate over a copy."""
_LOGGING = Subscription(logging_sink.log_record, every=False)


def subscribe(
    sink: Sink, /, *, every: bool | None = None, inline: bool = False
) -> Callable[[], None]:
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
        raise TypeError(
            f"a sink must be a function of one Record, not {type(sink).__name__}: {sink!r}"
        )
    # Threads and queues are loaded with the first sink.
    from .sinks.background import EXIT_FLUSH_SECONDS, BackgroundSink  # noqa: PLC0415

    every = bool(getattr(sink, "every", False)) if every is None else every
    attached = getattr(sink, "attached", None)
    detach = attached() if callable(attached) else None
    checked_sink = _warn_at_first_error(sink)
    background = None if inline else BackgroundSink(checked_sink, DROPS.increment)
    subscription = Subscription(background or checked_sink, every, background)
    with LOCK:
        SUBSCRIPTIONS.append(subscription)
        CLOCK_USERS.append(subscription)
        if every:
            SLOW_PATH_USERS.append(subscription)

    def unsubscribe() -> None:
        with LOCK:
            if subscription not in SUBSCRIPTIONS:
                return
            SUBSCRIPTIONS.remove(subscription)
            CLOCK_USERS.remove(subscription)
            if every:
                SLOW_PATH_USERS.remove(subscription)
        if background is not None:
            background.close()
        if detach is not None:
            if background is not None:
                background.flush(EXIT_FLUSH_SECONDS)  # Queued records may still need the sink.
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
    sinks = [subscription.background for subscription in list(SUBSCRIPTIONS)]
    # `all` alone would stop at the first sink that is too slow.
    flushed = [sink.flush(end - clock()) for sink in sinks if sink is not None]
    return all(flushed)


def dropped() -> int:
    """Return the number of records that were lost because a sink raised or was too slow.

    Returns:
        The number. A record is counted once for each sink that lost it.
    """
    return DROPS.count


def is_wanted(level: int, /) -> bool:
    """Return whether a record of this logging level has a sink. Ask before building its fields."""
    return bool(SUBSCRIPTIONS) or logging_sink.is_enabled(level)


def is_success_wanted() -> bool:
    """Return whether a sink wants records of calls that succeed at the first attempt."""
    return any(subscription.every for subscription in list(SUBSCRIPTIONS))


def emit(kind: str, fields: Mapping[str, Any], /) -> None:
    """Redact a record and pass it to all sinks. Never raises: lost records are counted."""
    # A program without failures needs neither.
    from .record import Record  # noqa: PLC0415
    from .redaction.redactor import redact  # noqa: PLC0415

    try:
        present = {name: value for name, value in fields.items() if value is not None}
        record = Record(kind, clock_around().now(), redact({**ids_around(), **present}))
    except Exception:  # The user's value or the clock of a test raised.
        DROPS.increment()
        return
    for subscription in (_LOGGING, *SUBSCRIPTIONS):
        if kind == "success" and not subscription.every:
            continue
        try:
            subscription.sink(record)
        except Exception:  # A sink must not stop the work.
            DROPS.increment()


def _warn_at_first_error(sink: Sink) -> Sink:
    """Wrap a sink so that its first exception is logged. Later ones are only counted."""
    has_warned = False

    def warn_and_raise(record: Record, /) -> None:
        nonlocal has_warned
        try:
            sink(record)
        except Exception as error:
            if not has_warned:
                has_warned = True
                logging_sink.warn_about_sink(sink, error)
            raise

    return warn_and_raise


def _import_lazy_modules() -> None:
    """Import the modules of `emit`. A forked child must not wait for a parent's import lock."""
    from . import record, redaction  # noqa: F401, PLC0415


before_fork(_import_lazy_modules)
