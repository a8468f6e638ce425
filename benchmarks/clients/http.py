"""The HTTP half: a GET on a connection that is kept, by the bare library and with retries around it."""

import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, Literal

from benchmarks.clients.half import Half, Show
from benchmarks.clients.loopback import loopback
from benchmarks.interval import Interval, number
from benchmarks.plot import Bar, Panel
from benchmarks.table import Table
from benchmarks.target import Outcome, Target

Colour = Literal["sync", "async"]


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    sample: float
    """Seconds of one sample."""


FULL = Effort(rounds=41, sample=0.04)
QUICK = Effort(rounds=1, sample=0.002)
PATH = "/sessions/s-1"
CLIENT, TRANSPORT, CLASSIC = "redrive Client", "redrive Transport", "redrive Transport, httpx"
NOTE = (
    "HTTP: GET of 33 bytes from a server in a process of its own, on one connection that is kept. Interleaved rounds; every "
    "candidate stands between two bare calls of its library in the same round, and is given as a ratio to them: of the time that "
    "passed, and of the processor time of the client's process."
)


@dataclass
class Candidate:
    """One way to send a request: a function of no arguments, plain or async, and the bare one it is compared with."""

    name: str
    colour: Colour
    base: str
    send: Callable[[], Any]
    wall: list[float] = field(default_factory=list)
    """To the bare call, in the time that passed."""
    cpu: list[float] = field(default_factory=list)
    added: list[float] = field(default_factory=list)
    """Microseconds of processor time."""


def half(quick: bool, show: Show) -> Half:
    """Measure both colours."""
    effort, found = QUICK if quick else FULL, Half(notes=[NOTE])
    with loopback() as url:
        with ExitStack() as stack:
            measured = _rounds(_plain(url, stack, found), effort, show)

        async def later() -> list[Candidate]:
            async with AsyncExitStack() as stack:
                return await _arounds(await _later(url, stack, found), effort, show)

        measured += asyncio.run(later())
    _report(found, measured)
    return found


def _plain(url: str, stack: ExitStack, half: Half) -> list[Candidate]:
    import httpx2

    from redrive import http

    bare = stack.enter_context(httpx2.Client())
    ours = stack.enter_context(http.Client(url))
    ported = stack.enter_context(httpx2.Client(transport=http.Transport()))
    whole = url + PATH
    found = [
        Candidate("httpx2", "sync", "httpx2", lambda: bare.get(whole)),
        Candidate(CLIENT, "sync", "httpx2", lambda: ours.get(PATH)),
        Candidate(TRANSPORT, "sync", "httpx2", lambda: ported.get(whole)),
    ]
    with _Optional(half, "tenacity around httpx2"):
        from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

        on = retry_if_exception_type(httpx2.TransportError)
        wrapped = retry(stop=stop_after_attempt(3), wait=wait_exponential_jitter(), retry=on)(lambda: bare.get(whole))
        found.append(Candidate("tenacity around httpx2", "sync", "httpx2", wrapped))
    with _Optional(half, "httpx and httpx-retries"):
        import httpx

        classic = stack.enter_context(httpx.Client())
        other = stack.enter_context(httpx.Client(transport=http.Transport()))
        found.append(Candidate("httpx", "sync", "httpx", lambda: classic.get(whole)))
        found.append(Candidate(CLASSIC, "sync", "httpx", lambda: other.get(whole)))
        from httpx_retries import RetryTransport

        theirs = stack.enter_context(httpx.Client(transport=RetryTransport()))
        found.append(Candidate("httpx-retries", "sync", "httpx", lambda: theirs.get(whole)))
    return found


async def _later(url: str, stack: AsyncExitStack, half: Half) -> list[Candidate]:
    import httpx2

    from redrive import http

    bare = await stack.enter_async_context(httpx2.AsyncClient())
    ours = await stack.enter_async_context(http.AsyncClient(url))
    ported = await stack.enter_async_context(httpx2.AsyncClient(transport=http.Transport()))
    whole = url + PATH
    found = [
        Candidate("httpx2", "async", "httpx2", lambda: bare.get(whole)),
        Candidate(CLIENT, "async", "httpx2", lambda: ours.get(PATH)),
        Candidate(TRANSPORT, "async", "httpx2", lambda: ported.get(whole)),
    ]
    with _Optional(half, "tenacity around httpx2"):
        from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

        async def get() -> Any:
            return await bare.get(whole)

        on = retry_if_exception_type(httpx2.TransportError)
        wrapped = retry(stop=stop_after_attempt(3), wait=wait_exponential_jitter(), retry=on)(get)
        found.append(Candidate("tenacity around httpx2", "async", "httpx2", wrapped))
    with _Optional(half, "httpx and httpx-retries"):
        import httpx

        classic = await stack.enter_async_context(httpx.AsyncClient())
        other = await stack.enter_async_context(httpx.AsyncClient(transport=http.Transport()))
        found.append(Candidate("httpx", "async", "httpx", lambda: classic.get(whole)))
        found.append(Candidate(CLASSIC, "async", "httpx", lambda: other.get(whole)))
        from httpx_retries import RetryTransport

        theirs = await stack.enter_async_context(httpx.AsyncClient(transport=RetryTransport()))
        found.append(Candidate("httpx-retries", "async", "httpx", lambda: theirs.get(whole)))
    return found


class _Optional:
    """A peer that is not installed is left out, and said to be."""

    def __init__(self, half: Half, name: str) -> None:
        self._half = half
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, ImportError):
            return False
        self._half.absent[self._name] = str(error)
        return True


Times = tuple[float, float]
"""Microseconds of one call: that passed, and of the processor."""


def _clock(send: Callable[[], object], times: int) -> Times:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(times):
        send()
    return (time.perf_counter_ns() - wall) / times / 1000, (time.process_time_ns() - cpu) / times / 1000


async def _aclock(send: Callable[[], Awaitable[object]], times: int) -> Times:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(times):
        await send()
    return (time.perf_counter_ns() - wall) / times / 1000, (time.process_time_ns() - cpu) / times / 1000


def _rounds(candidates: list[Candidate], effort: Effort, show: Show) -> list[Candidate]:
    for candidate in candidates:
        _clock(candidate.send, 20)  # connections are opened, code is warm
    times = max(3, int(effort.sample * 1e6 / _clock(candidates[0].send, 20)[0]))
    gc.collect()
    gc.freeze()
    for n in range(effort.rounds):
        show(f"HTTP, sync: round {n + 1} of {effort.rounds}")
        for base, own in _order(candidates):
            before = _clock(base.send, times)
            _note(own, before, _clock(own.send, times), _clock(base.send, times))
    gc.unfreeze()
    return candidates


async def _arounds(candidates: list[Candidate], effort: Effort, show: Show) -> list[Candidate]:
    for candidate in candidates:
        await _aclock(candidate.send, 20)
    times = max(3, int(effort.sample * 1e6 / (await _aclock(candidates[0].send, 20))[0]))
    gc.collect()
    gc.freeze()
    for n in range(effort.rounds):
        show(f"HTTP, async: round {n + 1} of {effort.rounds}")
        for base, own in _order(candidates):
            before = await _aclock(base.send, times)
            _note(own, before, await _aclock(own.send, times), await _aclock(base.send, times))
    gc.unfreeze()
    return candidates


def _order(candidates: list[Candidate]) -> list[tuple[Candidate, Candidate]]:
    bases = {candidate.name: candidate for candidate in candidates}
    pairs = [(bases[candidate.base], candidate) for candidate in candidates if candidate.name != candidate.base]
    random.shuffle(pairs)
    return pairs


def _note(own: Candidate, before: Times, found: Times, after: Times) -> None:
    own.wall.append(found[0] / mean((before[0], after[0])))
    own.cpu.append(found[1] / mean((before[1], after[1])))
    own.added.append(found[1] - mean((before[1], after[1])))


def _report(half: Half, found: list[Candidate]) -> None:
    measured = [candidate for candidate in found if candidate.wall]
    for colour in ("sync", "async"):
        own = sorted((each for each in measured if each.colour == colour), key=lambda each: median(each.wall))
        rows = [
            (each.name, each.base, str(Interval.of(each.wall)), str(Interval.of(each.cpu)), number(median(each.added)))
            for each in own
        ]
        columns = ("what", "bare library", "time, ratio", "processor, ratio", "µs of processor added")
        half.tables.append(Table(f"HTTP, {colour}: a GET beside the bare library", columns, rows))
        bars = [Bar(each.name, median(each.wall), "ours" if "redrive" in each.name else "peer") for each in own]
        half.panels.append(Panel(f"HTTP GET, {colour}: × the bare library", "×", bars, 1.15))
        half.outcomes += [
            _judged(measured, CLIENT, colour, 1.15),
            _judged(measured, TRANSPORT, colour, 1.08),
        ]


def _judged(found: list[Candidate], name: str, colour: str, limit: float) -> Outcome:
    samples = next((each.wall for each in found if (each.name, each.colour) == (name, colour)), None)
    what = f"HTTP, {colour}: {name.removeprefix('redrive ')}, time of a request"
    return Outcome(Target(what, "≤", limit, "×"), Interval.of(samples) if samples else None)
