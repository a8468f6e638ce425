"""The fast path agrees with the reference loops on every outcome, wait and log record.

Both run the same scripts on a virtual clock, with seeded random draws. Only two differences are
allowed, which `Outcome` documents: without a time limit, the fast path reads no clock before the
first failure. Its `elapsed` then begins there, and that attempt has no `latency_ms`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redrive import Budget, Fault, Stop, current, journal, outcome, retry
from redrive.core.clock import SystemClock
from redrive.engine import fastpath, loop, run, timer
from redrive.engine.settings import RetrySettings

EXAMPLES = 300
OPERATION = "shop.pay"
START = 1024.0
EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)

# All durations are multiples of 1/64, so that sums of floats are exact.
DURATIONS = st.sampled_from([0.0, 0.5, 3.0, 12.0])
FAILURES = ["chosen", "chosen", "chosen", "transient", "same", "throttled", "permanent", "stop", "nested"]
ACTIONS = st.sampled_from([*["succeed"] * 3, *FAILURES])
SYNC_STEPS = st.tuples(ACTIONS | st.just("interrupt"), DURATIONS)
ASYNC_STEPS = st.tuples(ACTIONS | st.just("clean-up"), DURATIONS)


class SlowDown(Exception):
    """A server that asks to wait for 2 seconds."""


class Interrupt(BaseException):
    """Stops the caller, as KeyboardInterrupt does."""


def slow_down_rule(error: Exception) -> Fault | None:
    return Fault("throttled", after=2.0) if isinstance(error, SlowDown) else None


def is_odd(result: int) -> bool:
    return result % 2 == 1


ON: list[Any] = [ValueError, ValueError, (ValueError, ConnectionError, SlowDown), (slow_down_rule, ValueError), None]
OPTIONS = st.fixed_dictionaries(
    {
        "max_attempts": st.sampled_from([3, 2, 5, 1]),
        "backoff_base": st.sampled_from([0.0, 0.25, 1.0]),
        "backoff_max": st.sampled_from([0.5, 4.0]),
        "jitter": st.sampled_from([0.0, 0.5]),
        "on": st.sampled_from(ON),
        "nested": st.sampled_from(["final", "allow"]),
        "idempotent": st.sampled_from([*[True] * 5, False]),
        "reject": st.sampled_from([*[None] * 7, is_odd]),
    }
)
LIMITS = st.sampled_from([(None, None), (None, None), (None, None), (None, 1.0), (2.0, None), (20.0, 10.0)])
"""Seconds for all attempts, and for each."""
BUDGETS = st.fixed_dictionaries({"capacity": st.sampled_from([100.0, 100.0, 25.0, 0.0]), "floor": st.sampled_from([0.0, 1.0])})
LISTENERS = st.sampled_from(["nobody", "nobody", "warnings", "info", "sink"])


class Clock:
    """A clock that moves only when something sleeps."""

    def __init__(self) -> None:
        self.now = START
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def asleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(seconds)

    def utc(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now - START)


class Selector(selectors.SelectSelector):
    """Lets virtual time pass instead of waiting."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("the event loop would wait forever")
        self._clock.now += max(0.0, timeout)
        return super().select(0)


class EventLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        super().__init__(Selector(clock))

    def time(self) -> float:
        return self._clock.now


class Records(logging.Handler):
    """Collects log records as (kind, fields)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.redrive_kind, record.redrive))  # type: ignore[attr-defined]  # of our own

    def __call__(self, record: journal.Record) -> None:
        self.seen.append((record.kind, dict(record.fields)))


@dataclass
class Trace:
    """Everything that can be observed of a sequence of calls."""

    attempts: list[tuple[int, float | None, float]] = field(default_factory=list)
    """Number, remaining seconds and start of each attempt, as the code inside sees them."""
    ends: list[tuple[Any, ...]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    """Of the first attempt of each call."""


@contextmanager
def virtual_time(clock: Clock, seed: int) -> Iterator[None]:
    # Seeded by the time, because an inner layer without jitter draws on one of the paths only.
    def draw() -> float:
        return random.Random(f"{seed} {clock.now}").randrange(64) / 64

    with pytest.MonkeyPatch.context() as patch:
        for module in (fastpath, timer):
            patch.setattr(module, "monotonic", clock.monotonic)
        patch.setattr(fastpath, "sleep", clock.sleep)
        patch.setattr(timer, "asyncio", SimpleNamespace(sleep=clock.asleep))
        patch.setattr(SystemClock, "monotonic", staticmethod(clock.monotonic))
        patch.setattr(SystemClock, "sleep", staticmethod(clock.sleep))
        patch.setattr(SystemClock, "asleep", staticmethod(clock.asleep))
        patch.setattr(SystemClock, "now", staticmethod(clock.utc))
        patch.setattr(run, "system_draw", draw)
        yield


@contextmanager
def listening(listener: str) -> Iterator[Records]:
    records, logger = Records(), logging.getLogger("redrive")
    if listener == "sink":
        unsubscribe = journal.subscribe(records, inline=True)
        try:
            yield records
        finally:
            unsubscribe()
        return
    level, propagates = logger.level, logger.propagate
    logger.setLevel({"nobody": logging.CRITICAL, "warnings": logging.WARNING, "info": logging.INFO}[listener])
    logger.propagate = False
    logger.addHandler(records)
    try:
        yield records
    finally:
        logger.removeHandler(records)
        logger.setLevel(level)
        logger.propagate = propagates


class Script:
    """A function with scripted attempts, sync and async."""

    def __init__(self, clock: Clock, calls: list[list[tuple[str, float]]]) -> None:
        self.trace = Trace()
        self._clock = clock
        self._calls = calls
        self._same = ValueError("the same object each time")
        self._steps: Iterator[tuple[str, float]] = iter(())
        self._is_first = True
        self._inner = retry(max_attempts=2, backoff_base=0, jitter=0, on=ValueError, attempt_timeout=None)

    def begin(self, call: int) -> None:
        self._steps = iter(self._calls[call])
        self._is_first = True

    def _next(self) -> tuple[str, float]:
        attempt = current()
        self.trace.attempts.append((attempt.number, attempt.remaining, self._clock.now))
        return next(self._steps, ("succeed", 0.0))

    @contextmanager
    def _measured(self) -> Iterator[None]:
        is_first, self._is_first = self._is_first, False
        started = self._clock.now
        try:
            yield
        finally:
            if is_first:
                self.trace.durations.append(self._clock.now - started)

    def sync(self) -> int:
        with self._measured():
            action, duration = self._next()
            self._clock.now += duration
            if action == "nested":
                self._inner.call(self._fail)
            return self._end(action)

    async def later(self) -> int:
        with self._measured():
            action, duration = self._next()
            try:
                await asyncio.sleep(duration)
            except asyncio.CancelledError:
                if action == "clean-up":
                    raise ValueError("clean-up failed") from None
                raise
            if action == "nested":
                await self._inner.acall(self._fail_later)
            return self._end(action)

    def _fail(self) -> None:
        raise ValueError("inner")

    async def _fail_later(self) -> None:
        raise ValueError("inner")

    def _end(self, action: str) -> int:
        errors: dict[str, BaseException] = {
            "transient": ConnectionResetError("reset"),
            "chosen": ValueError("chosen"),
            "same": self._same,
            "throttled": SlowDown("slow down"),
            "permanent": FileNotFoundError("missing"),
            "stop": Stop("enough"),
            "interrupt": Interrupt(),
        }
        if action in errors:
            raise errors[action]
        return len(self.trace.attempts)

    def end(self, call: Callable[[], Any], budget: Budget) -> None:
        """Make a call, and record its outcome."""
        try:
            result: Any = call()
        except (Exception, Interrupt, asyncio.CancelledError) as error:
            ended = outcome(error)
            fields = None if ended is None else (ended.attempts, ended.elapsed, ended.reason, ended.retry_at, ended.layer)
            result = (type(error), str(error), tuple(getattr(error, "__notes__", ())), fields)
        self.trace.ends.append((result, budget.left, budget.denied, self._clock.now))


Wrap = Callable[[RetrySettings, Callable[..., Any]], Callable[..., Any]]


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    timeout, attempt_timeout = draw(LIMITS)
    return {**draw(OPTIONS), "timeout": timeout, "attempt_timeout": attempt_timeout}


def settings_of(options: dict[str, Any], budget: Budget) -> RetrySettings:
    layer = retry(**options, budget=budget)
    return layer.settings.named(OPERATION, layer)


def trace_sync(
    wrap: Wrap, options: dict[str, Any], numbers: dict[str, float], calls: list[list[tuple[str, float]]], seed: int, listener: str
) -> Trace:
    clock, budget = Clock(), Budget(cost=10, throttled_cost=5, refill=1, **numbers)
    script = Script(clock, calls)
    wrapped = wrap(settings_of(options, budget), script.sync)
    with virtual_time(clock, seed), listening(listener) as records:
        for call in range(len(calls)):
            script.begin(call)
            script.end(wrapped, budget)
    script.trace.slept, script.trace.records = clock.slept, records.seen
    return script.trace


def trace_async(
    wrap: Wrap,
    options: dict[str, Any],
    numbers: dict[str, float],
    calls: list[list[tuple[str, float]]],
    seed: int,
    listener: str,
    cancelled: float | None,
) -> Trace:
    clock, budget = Clock(), Budget(cost=10, throttled_cost=5, refill=1, **numbers)
    script = Script(clock, calls)
    wrapped = wrap(settings_of(options, budget), script.later)
    event_loop = EventLoop(clock)

    async def call_and_cancel() -> Any:
        task = asyncio.ensure_future(wrapped())
        handle = None if cancelled is None else event_loop.call_later(cancelled, task.cancel)
        try:
            return await task
        finally:
            if handle is not None:
                handle.cancel()

    try:
        with virtual_time(clock, seed), listening(listener) as records:
            for call in range(len(calls)):
                script.begin(call)
                script.end(lambda: event_loop.run_until_complete(call_and_cancel()), budget)
    finally:
        event_loop.close()
    script.trace.slept, script.trace.records = clock.slept, records.seen
    return script.trace


ELAPSED = re.compile(r"(after \d+ attempts?) in \S+ s")


def without_first_measurement(trace: Trace, *, is_fast: bool) -> Trace:
    """Return the trace without the time of first attempts, which the fast path does not measure.

    Records of the inner layer lose it in both traces: it takes the fast path only inside of an
    attempt that is not published.
    """
    ends: list[tuple[Any, ...]] = []
    for (result, *rest), duration in zip(trace.ends, trace.durations, strict=True):
        if isinstance(result, tuple):
            kind, message, notes, fields = result
            if fields is not None and not is_fast:
                attempts, elapsed, reason, retry_at, layer = fields
                if layer == OPERATION and attempts:  # else the mark is the inner layer's
                    fields = (attempts, elapsed - duration, reason, retry_at, layer)
            result = (kind, message, tuple(ELAPSED.sub(r"\1", note) for note in notes), fields)
        ends.append((result, *rest))
    records = []
    for kind, fields in trace.records:
        is_unmeasured = not is_fast or fields["operation"] != OPERATION
        if fields["attempt"] == 1 and is_unmeasured:
            fields = {name: value for name, value in fields.items() if name != "latency_ms"}
        records.append((kind, fields))
    return Trace(trace.attempts, ends, trace.slept, records, trace.durations)


def assert_equal(fast: Trace, reference: Trace, options: dict[str, Any], listener: str) -> None:
    is_unmeasured = (
        options["timeout"] is None and options["attempt_timeout"] is None and options["reject"] is None and listener != "sink"
    )
    if is_unmeasured:
        fast = without_first_measurement(fast, is_fast=True)
        reference = without_first_measurement(reference, is_fast=False)
    assert fast == reference


@pytest.mark.req("C-1", "C-9")
@settings(max_examples=EXAMPLES)
@given(
    options=options(),
    numbers=BUDGETS,
    calls=st.lists(st.lists(SYNC_STEPS, min_size=1, max_size=5), min_size=3, max_size=8),
    seed=st.integers(0, 2**16),
    listener=LISTENERS,
)
@example(  # the second attempt is measured from the end of the wait
    options={
        "max_attempts": 2,
        "backoff_base": 1.0,
        "backoff_max": 4.0,
        "jitter": 0.0,
        "on": ValueError,
        "nested": "final",
        "idempotent": True,
        "reject": None,
        "timeout": None,
        "attempt_timeout": None,
    },
    numbers={"capacity": 100.0, "floor": 0.0},
    calls=[[("chosen", 0.5), ("chosen", 0.5)]] * 2,
    seed=0,
    listener="warnings",
)
def test_sync_calls_agree_with_the_reference_loop(
    options: dict[str, Any], numbers: dict[str, float], calls: list[list[tuple[str, float]]], seed: int, listener: str
) -> None:
    fast = trace_sync(fastpath.wrap_sync, options, numbers, calls, seed, listener)
    reference = trace_sync(loop.wrap_sync, options, numbers, calls, seed, listener)
    assert_equal(fast, reference, options, listener)


@pytest.mark.req("C-1", "C-2", "C-9")
@settings(max_examples=EXAMPLES)
@given(
    options=options(),
    numbers=BUDGETS,
    calls=st.lists(st.lists(ASYNC_STEPS, min_size=1, max_size=5), min_size=3, max_size=6),
    seed=st.integers(0, 2**16),
    listener=LISTENERS,
    cancelled=st.none() | st.sampled_from([0.25, 1.0, 2.25, 10.25]),
)
def test_async_calls_agree_with_the_reference_loop(
    options: dict[str, Any],
    numbers: dict[str, float],
    calls: list[list[tuple[str, float]]],
    seed: int,
    listener: str,
    cancelled: float | None,
) -> None:
    fast = trace_async(fastpath.wrap_async, options, numbers, calls, seed, listener, cancelled)
    reference = trace_async(loop.wrap_async, options, numbers, calls, seed, listener, cancelled)
    assert_equal(fast, reference, options, listener)
