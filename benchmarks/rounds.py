"""Interleaved rounds: every candidate once a round, in random order, each between two plain calls."""

import asyncio
import gc
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.candidate import Function, Kind
from benchmarks.interval import Interval

Clock = Callable[[Function, int], float]
"""CPU nanoseconds of one call, over so many calls."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """What one call costs: as a ratio to the plain call beside it, and in nanoseconds on top of it."""

    ratio: Interval
    added: float


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    sample: float
    """CPU nanoseconds of one sample."""
    processes: int
    """Fresh interpreters for each cold import."""


FULL = Effort(rounds=61, sample=5e6, processes=21)
QUICK = Effort(rounds=2, sample=1e5, processes=1)


def clock_calls(fn: Function, times: int) -> float:
    numbers = range(times)
    start = time.process_time_ns()
    for _ in numbers:
        fn()
    return (time.process_time_ns() - start) / times


async def clock_awaits(fn: Function, times: int) -> float:
    numbers = range(times)
    start = time.process_time_ns()
    for _ in numbers:
        await fn()
    return (time.process_time_ns() - start) / times


@contextmanager
def clock(kind: Kind) -> Iterator[Clock]:
    if kind == "sync":
        yield clock_calls
        return
    with asyncio.Runner() as runner:
        yield lambda fn, times: runner.run(clock_awaits(fn, times))


def repetitions(clock: Clock, fn: Function, sample: float) -> int:
    """How many calls make one sample; found by trying, twice because the first calls are slow."""
    times = 10
    for _ in range(2):
        times = max(10, int(sample / max(clock(fn, times), 1.0)))
    return times


def measure(
    kind: Kind,
    plain: Function,
    functions: Mapping[str, Function],
    effort: Effort,
    progress: Progress,
) -> tuple[dict[str, Cost], dict[str, str]]:
    """What each function costs beside the plain one, and why some could not be measured."""
    failed: dict[str, str] = {}
    with clock(kind) as timed:
        times: dict[str, int] = {}
        plain_times = repetitions(timed, plain, effort.sample)
        for name, fn in functions.items():
            try:
                times[name] = repetitions(timed, fn, effort.sample)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
        names = list(times)
        ratios: dict[str, list[float]] = {name: [] for name in names}
        added: dict[str, list[float]] = {name: [] for name in names}
        gc.collect()
        gc.freeze()  # what other libraries keep on the heap is not this one's cost
        for n in range(effort.rounds):
            progress(f"round {n + 1} of {effort.rounds}")
            random.shuffle(names)
            before = timed(plain, plain_times)
            for name in tuple(names):
                try:
                    own = timed(functions[name], times[name])
                except Exception as error:
                    failed[name] = f"{type(error).__name__}: {error}"
                    names.remove(name)
                    continue
                after = timed(plain, plain_times)
                base = (before + after) / 2
                ratios[name].append(own / base)
                added[name].append(own - base)
                before = after
        gc.unfreeze()
    costs = {name: Cost(Interval.of(ratios[name]), median(added[name])) for name in ratios if name not in failed}
    return costs, failed
