"""Cost of a failed call: objects in reference cycles, frames in the traceback, and calls of nested layers."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from benchmarks.candidate import Candidate, Function, Kind

CALLS = 100


@dataclass(frozen=True)
class FailureCost:
    """Cost of a call that failed three times."""

    cycles: float
    """Objects per call that only the garbage collector can free."""
    frames: int
    """Frames in the traceback, including the caller and the failing function."""
    added: int
    """Additional frames, compared with a direct call."""
    nested: int
    """Calls of the innermost function with three layers of three attempts each."""
    error: str
    """Type of the error that the caller receives."""


def boom() -> None:
    raise ValueError("x")


async def async_boom() -> None:
    raise ValueError("x")


def _depth(traceback: TracebackType | None) -> int:
    depth = 0
    while traceback is not None:
        depth, traceback = depth + 1, traceback.tb_next
    return depth


def _catcher(fn: Function) -> Callable[[], Exception | None]:
    def run() -> Exception | None:
        try:
            fn()
        except Exception as error:
            return error
        return None

    return run


def _async_catcher(fn: Function, runner: asyncio.Runner) -> Callable[[], Exception | None]:
    async def catch() -> Exception | None:
        try:
            await fn()
        except Exception as error:
            return error
        return None

    return lambda: runner.run(catch())


def measure(candidate: Candidate, kind: Kind) -> FailureCost:
    """Measure failing calls. The cost of the event loop is subtracted."""
    with asyncio.Runner() as runner:
        if kind == "sync":
            direct, failing = _catcher(boom), _catcher(candidate.form.wrap(boom))
        else:
            direct = _async_catcher(async_boom, runner)
            failing = _async_catcher(candidate.form.wrap(async_boom), runner)
        base_cycles, base_frames, _ = _measure_calls(direct)
        cycles, frames, error = _measure_calls(failing)
        return FailureCost(
            max(cycles - base_cycles, 0.0), frames, frames - base_frames, _count_nested_calls(candidate, kind, runner), error
        )


def _measure_calls(catch: Callable[[], Exception | None]) -> tuple[float, int, str]:
    error = catch()
    frames, name = _depth(error.__traceback__ if error else None), type(error).__name__
    del error
    gc.collect()
    gc.disable()
    try:
        for _ in range(CALLS):
            catch()
        return gc.collect() / CALLS, frames, name
    finally:
        gc.enable()


def _count_nested_calls(candidate: Candidate, kind: Kind, runner: asyncio.Runner) -> int:
    calls = 0

    def leaf() -> None:
        nonlocal calls
        calls += 1
        raise ValueError("x")

    async def async_leaf() -> None:
        leaf()

    wrap = candidate.form.nest or candidate.form.wrap
    inner = wrap(leaf if kind == "sync" else async_leaf)
    if kind == "sync":

        def call_inner() -> None:
            inner()

        def call_middle() -> None:
            middle()

        middle = wrap(call_inner)
        _catcher(wrap(call_middle))()
    else:

        async def await_inner() -> None:
            await inner()

        async def await_middle() -> None:
            await middle()

        middle = wrap(await_inner)
        _async_catcher(wrap(await_middle), runner)()
    return calls
