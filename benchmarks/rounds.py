"""Interleaved rounds. Each round measures all candidates in random order, each one between two direct calls."""

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
"""Returns CPU nanoseconds per call, for a number of calls."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """Cost of a call: the ratio to a direct call, and the additional nanoseconds."""

    ratio: Interval
    added: float


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    sample: float
    """CPU nanoseconds per sample."""
    processes: int
    """New interpreters for each cold import."""


FULL = Effort(rounds=61, sample=5e6, processes=21)
QUICK = Effort(rounds=2, sample=1e5, processes=1)


def time_calls(fn: Function, times: int) -> float:
    numbers = range(times)
    start = time.process_time_ns()
    for _ in numbers:
        fn()
    return (time.process_time_ns() - start) / times


async def time_awaits(fn: Function, times: int) -> float:
    numbers = range(times)
    start = time.process_time_ns()
    for _ in numbers:
        await fn()
    return (time.process_time_ns() - start) / times


@contextmanager
def clock(kind: Kind) -> Iterator[Clock]:
    if kind == "sync":
        yield time_calls
        return
    with asyncio.Runner() as runner:
        yield lambda fn, times: runner.run(time_awaits(fn, times))


def repetitions(clock: Clock, fn: Function, sample: float) -> int:
    """Return the number of calls per sample. It is measured twice, because the first calls are slow."""
    times = 10
    for _ in range(2):
        times = max(10, int(sample / max(clock(fn, times), 1.0)))
    return times


def measure(
    kind: Kind,
    direct: Function,
    functions: Mapping[str, Function],
    effort: Effort,
    progress: Progress,
) -> tuple[dict[str, Cost], dict[str, str]]:
    """Compare functions with a direct call.

    Returns:
        The cost of each function, and the reasons why others failed.
    """
    failed: dict[str, str] = {}
    with clock(kind) as measure_calls:
        times: dict[str, int] = {}
        direct_times = repetitions(measure_calls, direct, effort.sample)
        for name, fn in functions.items():
            try:
                times[name] = repetitions(measure_calls, fn, effort.sample)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
        names = list(times)
        ratios: dict[str, list[float]] = {name: [] for name in names}
        added: dict[str, list[float]] = {name: [] for name in names}
        gc.collect()
        gc.freeze()  # objects of other libraries must not cost time
        for n in range(effort.rounds):
            progress(f"round {n + 1} of {effort.rounds}")
            random.shuffle(names)
            before = measure_calls(direct, direct_times)
            for name in tuple(names):
                try:
                    own = measure_calls(functions[name], times[name])
                except Exception as error:
                    failed[name] = f"{type(error).__name__}: {error}"
                    names.remove(name)
                    continue
                after = measure_calls(direct, direct_times)
                base = (before + after) / 2
                ratios[name].append(own / base)
                added[name].append(own - base)
                before = after
        gc.unfreeze()
    costs = {name: Cost(Interval.of(ratios[name]), median(added[name])) for name in ratios if name not in failed}
    return costs, failed
