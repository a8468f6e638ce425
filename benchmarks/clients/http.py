"""A GET on a persistent connection, with the bare library and with retries."""

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, Literal

from benchmarks.clients.loopback import start_server
from benchmarks.clients.part import Part, Progress
from benchmarks.interval import Interval, number
from benchmarks.plot import Bar, Panel
from benchmarks.table import Table
from benchmarks.target import Outcome, Target

Kind = Literal["sync", "async"]


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    sample: float
    """Seconds per sample."""


FULL = Effort(rounds=41, sample=0.04)
QUICK = Effort(rounds=1, sample=0.002)
PATH = "/sessions/s-1"
CLIENT, TRANSPORT, CLASSIC = "redrive Client", "redrive Transport", "redrive Transport, httpx"
NOTE = (
    "The HTTP client sends a GET for 33 bytes to a server in another process, on a persistent connection. In each interleaved "
    "round, each candidate runs between two direct calls of its library. The ratios are to the mean of both, of the elapsed time "
    "and of the CPU time of the client process."
)


@dataclass
class Candidate:
    """One way to send a request, and the bare library that it is compared with."""

    name: str
    kind: Kind
    base: str
    send: Callable[[], Any]
    wall: list[float] = field(default_factory=list)
    """Ratios of elapsed time to the bare library."""
    cpu: list[float] = field(default_factory=list)
    added: list[float] = field(default_factory=list)
    """Additional microseconds of CPU time."""


def measure(quick: bool, progress: Progress) -> Part:
    """Measure sync and async clients."""
    effort, part = QUICK if quick else FULL, Part(notes=[NOTE])
    with start_server() as url:
        with ExitStack() as stack:
            measured = _rounds(_sync_candidates(url, stack, part), effort, progress)

        async def measure_async() -> list[Candidate]:
            async with AsyncExitStack() as stack:
                return await _async_rounds(await _async_candidates(url, stack, part), effort, progress)

        measured += asyncio.run(measure_async())
    _report(part, measured)
    return part


def _sync_candidates(url: str, stack: ExitStack, part: Part) -> list[Candidate]:
    import httpx2

    from redrive import http

    bare = stack.enter_context(httpx2.Client())
    ours = stack.enter_context(http.Client(url))
    ported = stack.enter_context(httpx2.Client(transport=http.Transport()))
    address = url + PATH
    candidates = [
        Candidate("httpx2", "sync", "httpx2", lambda: bare.get(address)),
        Candidate(CLIENT, "sync", "httpx2", lambda: ours.get(PATH)),
        Candidate(TRANSPORT, "sync", "httpx2", lambda: ported.get(address)),
    ]
    with _Optional(part, "tenacity around httpx2"):
        from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

        on = retry_if_exception_type(httpx2.TransportError)
        wrapped = retry(stop=stop_after_attempt(3), wait=wait_exponential_jitter(), retry=on)(lambda: bare.get(address))
        candidates.append(Candidate("tenacity around httpx2", "sync", "httpx2", wrapped))
    with _Optional(part, "httpx and httpx-retries"):
        import httpx

        classic = stack.enter_context(httpx.Client())
        other = stack.enter_context(httpx.Client(transport=http.Transport()))
        candidates.append(Candidate("httpx", "sync", "httpx", lambda: classic.get(address)))
        candidates.append(Candidate(CLASSIC, "sync", "httpx", lambda: other.get(address)))
        from httpx_retries import RetryTransport

        theirs = stack.enter_context(httpx.Client(transport=RetryTransport()))
        candidates.append(Candidate("httpx-retries", "sync", "httpx", lambda: theirs.get(address)))
    return candidates


async def _async_candidates(url: str, stack: AsyncExitStack, part: Part) -> list[Candidate]:
    import httpx2

    from redrive import http

    bare = await stack.enter_async_context(httpx2.AsyncClient())
    ours = await stack.enter_async_context(http.AsyncClient(url))
    ported = await stack.enter_async_context(httpx2.AsyncClient(transport=http.Transport()))
    address = url + PATH
    candidates = [
        Candidate("httpx2", "async", "httpx2", lambda: bare.get(address)),
        Candidate(CLIENT, "async", "httpx2", lambda: ours.get(PATH)),
        Candidate(TRANSPORT, "async", "httpx2", lambda: ported.get(address)),
    ]
    with _Optional(part, "tenacity around httpx2"):
        from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

        async def get() -> Any:
            return await bare.get(address)

        on = retry_if_exception_type(httpx2.TransportError)
        wrapped = retry(stop=stop_after_attempt(3), wait=wait_exponential_jitter(), retry=on)(get)
        candidates.append(Candidate("tenacity around httpx2", "async", "httpx2", wrapped))
    with _Optional(part, "httpx and httpx-retries"):
        import httpx

        classic = await stack.enter_async_context(httpx.AsyncClient())
        other = await stack.enter_async_context(httpx.AsyncClient(transport=http.Transport()))
        candidates.append(Candidate("httpx", "async", "httpx", lambda: classic.get(address)))
        candidates.append(Candidate(CLASSIC, "async", "httpx", lambda: other.get(address)))
        from httpx_retries import RetryTransport

        theirs = await stack.enter_async_context(httpx.AsyncClient(transport=RetryTransport()))
        candidates.append(Candidate("httpx-retries", "async", "httpx", lambda: theirs.get(address)))
    return candidates


class _Optional:
    """Records a library as absent if it is not installed."""

    def __init__(self, part: Part, name: str) -> None:
        self._part = part
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ImportError):
            return False
        self._part.absent[self._name] = str(error)
        return True


Times = tuple[float, float]
"""Microseconds per call: elapsed time and CPU time."""


def _time(send: Callable[[], object], times: int) -> Times:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(times):
        send()
    return (time.perf_counter_ns() - wall) / times / 1000, (time.process_time_ns() - cpu) / times / 1000


async def _async_time(send: Callable[[], Awaitable[object]], times: int) -> Times:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(times):
        await send()
    return (time.perf_counter_ns() - wall) / times / 1000, (time.process_time_ns() - cpu) / times / 1000


def _rounds(candidates: list[Candidate], effort: Effort, progress: Progress) -> list[Candidate]:
    for candidate in candidates:
        _time(candidate.send, 20)  # open the connections and warm the code
    times = max(3, int(effort.sample * 1e6 / _time(candidates[0].send, 20)[0]))
    gc.collect()
    gc.freeze()
    for n in range(effort.rounds):
        progress(f"HTTP, sync: round {n + 1} of {effort.rounds}")
        for base, own in _shuffle_pairs(candidates):
            before = _time(base.send, times)
            _record(own, before, _time(own.send, times), _time(base.send, times))
    gc.unfreeze()
    return candidates


async def _async_rounds(candidates: list[Candidate], effort: Effort, progress: Progress) -> list[Candidate]:
    for candidate in candidates:
        await _async_time(candidate.send, 20)
    times = max(3, int(effort.sample * 1e6 / (await _async_time(candidates[0].send, 20))[0]))
    gc.collect()
    gc.freeze()
    for n in range(effort.rounds):
        progress(f"HTTP, async: round {n + 1} of {effort.rounds}")
        for base, own in _shuffle_pairs(candidates):
            before = await _async_time(base.send, times)
            _record(own, before, await _async_time(own.send, times), await _async_time(base.send, times))
    gc.unfreeze()
    return candidates


def _shuffle_pairs(candidates: list[Candidate]) -> list[tuple[Candidate, Candidate]]:
    bases = {candidate.name: candidate for candidate in candidates}
    pairs = [(bases[candidate.base], candidate) for candidate in candidates if candidate.name != candidate.base]
    random.shuffle(pairs)
    return pairs


def _record(own: Candidate, before: Times, times: Times, after: Times) -> None:
    own.wall.append(times[0] / mean((before[0], after[0])))
    own.cpu.append(times[1] / mean((before[1], after[1])))
    own.added.append(times[1] - mean((before[1], after[1])))


def _report(part: Part, candidates: list[Candidate]) -> None:
    measured = [candidate for candidate in candidates if candidate.wall]
    for kind in ("sync", "async"):
        own = sorted((each for each in measured if each.kind == kind), key=lambda each: median(each.wall))
        rows = [
            (each.name, each.base, str(Interval.of(each.wall)), str(Interval.of(each.cpu)), number(median(each.added)))
            for each in own
        ]
        columns = ("case", "bare library", "time, ratio", "CPU, ratio", "CPU µs added")
        part.tables.append(Table(f"HTTP GET, {kind}", columns, rows))
        bars = [Bar(each.name, median(each.wall), "ours" if "redrive" in each.name else "peer") for each in own]
        part.panels.append(Panel(f"HTTP GET, {kind}: × the bare library", "×", bars, 1.15))
        part.outcomes += [
            _check(measured, CLIENT, kind, 1.15),
            _check(measured, TRANSPORT, kind, 1.08),
        ]


def _check(candidates: list[Candidate], name: str, kind: str, limit: float) -> Outcome:
    samples = next((each.wall for each in candidates if (each.name, each.kind) == (name, kind)), None)
    what = f"HTTP, {kind}, {name.removeprefix('redrive ')}, time per request"
    return Outcome(Target(what, "≤", limit, "×"), Interval.of(samples) if samples else None)
