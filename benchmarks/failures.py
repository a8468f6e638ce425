"""What a failed call leaves behind: objects in reference cycles, frames in the traceback, calls of the leaf."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from benchmarks.candidate import Candidate, Function, Kind

CALLS = 100


@dataclass(frozen=True)
class Remains:
    """After a call that failed three times."""

    cycles: float
    """Objects only the cyclic collector can free, for one call."""
    frames: int
    """In the traceback, those of the caller and of the failing function included."""
    added: int
    """Frames more than without a library."""
    nested: int
    """Calls of the innermost function with three layers of three attempts each."""
    error: str
    """The type the caller sees."""


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


def leaves(candidate: Candidate, kind: Kind) -> Remains:
    """Call and see. The runner of an event loop leaves nothing itself: that is taken off."""
    with asyncio.Runner() as runner:
        if kind == "sync":
            plain, failing = _catcher(boom), _catcher(candidate.form.wrap(boom))
        else:
            plain = _async_catcher(async_boom, runner)
            failing = _async_catcher(candidate.form.wrap(async_boom), runner)
        nothing, least, _ = _remains(plain)
        cycles, frames, error = _remains(failing)
        return Remains(max(cycles - nothing, 0.0), frames, frames - least, _nested(candidate, kind, runner), error)


def _remains(catch: Callable[[], Exception | None]) -> tuple[float, int, str]:
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


def _nested(candidate: Candidate, kind: Kind, runner: asyncio.Runner) -> int:
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
