"""The course of a run: what is measured, in which order, on which databases."""

import os
import random
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.durable import distance, pile, tenants
from benchmarks.durable.drain import OfTheLedger, RawPostgres, RawSQLite
from benchmarks.durable.idle import idle
from benchmarks.durable.once import BareStatements, Clocked, Once
from benchmarks.durable.peers import PEERS
from benchmarks.durable.results import Pair, Results
from benchmarks.durable.submitters import SUBJECTS, Shared
from benchmarks.interval import Interval
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS, VARIABLE, postgres_cluster

DURABLE = (
    "fsync=on", "synchronous_commit=on", "full_page_writes=on", "max_connections=200", "unix_socket_directories=",
    "timezone=UTC",
)  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int
    every: int
    """Peers run in every so manieth round."""
    seconds: float
    """Of one measurement, at most."""
    big: int
    """Jobs in a pile."""
    small: int
    claims: int
    """Beside a pile, the median of which is one measurement."""
    measurements: int
    polls: int
    poll: float = 1.0
    """Seconds between two of them."""
    settings: tuple[str, ...] = DURABLE
    """Of Postgres."""


FULL = Effort(rounds=15, every=2, seconds=0.5, big=1_000_000, small=10_000, claims=30, measurements=9, polls=10)
QUICK = Effort(
    rounds=1, every=1, seconds=0.01, big=400, small=200, claims=3, measurements=1, polls=1, poll=0.05, settings=SETTINGS
)
FAR_ROUNDS = 3
JOBS = {("postgres", 100): 5000, ("postgres", 1): 300, ("sqlite", 100): 10_000, ("sqlite", 1): 300}


class Databases:
    """A server and a folder; a new database for whoever asks. ready: with the ledger's tables in it already."""

    def __init__(self, server: str, folder: Path, *, ready: bool = False) -> None:
        self.server = server
        self.folder = folder
        self._ready = ready
        self._patterns: dict[str, str] = {}
        self._name = f"bench_{uuid.uuid4().hex[:8]}_"  # others may be at a given server
        self._numbers = count()
        self._made: list[str] = []

    def new(self, kind: str) -> str:
        if self._ready and kind not in self._patterns:
            from redrive.ledger import open_ledger

            pattern = self._new(kind, "")
            open_ledger(pattern, migrate=True).close()
            self._patterns[kind] = pattern.rpartition("/")[2]
        return self._new(kind, self._patterns.get(kind, ""))

    def _new(self, kind: str, pattern: str) -> str:
        name = f"{self._name}{next(self._numbers)}"
        if kind == "sqlite":
            if pattern:
                shutil.copy(self.folder / pattern, self.folder / f"{name}.db")
            return f"sqlite:///{self.folder}/{name}.db"
        self._run(f"CREATE DATABASE {name}" + (f" TEMPLATE {pattern}" if pattern else ""))
        self._made.append(name)
        return self.server.rsplit("/", 1)[0] + f"/{name}"

    def dropped(self) -> None:
        """All of them."""
        self._run(*(f"DROP DATABASE {name} WITH (FORCE)" for name in self._made))

    def _run(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.server, autocommit=True) as connection:
            for each in statements:
                connection.execute(each.encode())


@contextmanager
def databases(settings: tuple[str, ...]) -> Iterator[Databases]:
    """Both, until the end of the block. Postgres is our own: another's settings are not known. A quick run takes a given one."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-bench-"))
    given = os.environ.get(VARIABLE) if settings is SETTINGS else None
    try:
        if given:
            places = Databases(given, folder, ready=True)
            try:
                yield places
            finally:
                places.dropped()
            return
        with postgres_cluster() as cluster, cluster.running(settings) as server:
            yield Databases(server, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(places: Databases, effort: Effort, only: list[str], progress: Progress) -> Results:
    """Everything, or only what is named."""
    results = Results(fsync=_fsync(places.folder))
    parts: dict[str, Callable[[], None]] = {
        "rounds": lambda: _rounds(places, effort, only, results, progress),
        "idle": lambda: _idle(places, effort, results, progress),
        "piles": lambda: _piles(places, effort, results, progress),
        "tenants": lambda: _tenants(places, effort, results, progress),
        "distance": lambda: _distance(places, effort, results, progress),
    }
    for name, part in parts.items():
        if not only or name in only or (name == "rounds" and set(only) - set(parts)):
            part()
    return results


def _rounds(places: Databases, effort: Effort, only: list[str], results: Results, progress: Progress) -> None:
    with ExitStack() as stack:
        acts: dict[str, list[Callable[[], None]]] = {"drains": [], "submits": [], "once": []}
        for database in ("postgres", "sqlite"):
            acts["drains"] += _drains(places, database, effort, results, stack)
            acts["submits"] += _submits(places, database, effort, results, stack)
            try:
                acts["once"].append(_once(places, database, effort, results, stack))
            except ModuleNotFoundError as missing:
                results.absent["`once`"] = f"not there yet ({missing})"
        some = [name for name in only if name in (*acts, "peers")]
        chosen = [act for name, found in acts.items() if not some or name in some for act in found]
        for number in range(effort.rounds):
            progress(f"round {number + 1} of {effort.rounds}")
            for act in random.sample(chosen, len(chosen)):
                act()
            if number % effort.every == 0 and (not some or "peers" in some):
                _peers(places, effort, results, progress)


def _sandwich(pair: Pair, base: Callable[[], float], own: Callable[[], float]) -> None:
    before = base()
    pair.add(before, own(), base())


def _drains(places: Databases, database: str, effort: Effort, results: Results, stack: ExitStack) -> list[Callable[[], None]]:
    raw: Any = RawPostgres(places.new(database)) if database == "postgres" else RawSQLite(_file(places.new(database)))
    own: Any = OfTheLedger(places.new(database))
    stack.enter_context(closing(raw))
    stack.enter_context(closing(own))

    def act(batch: int) -> Callable[[], None]:
        jobs = JOBS[database, batch]
        if effort is QUICK:
            jobs = max(jobs // 50, batch)

        def filled(subject: Any) -> float:
            subject.fill(jobs)
            rate: float = subject.drain(jobs, batch, effort.seconds)
            return rate

        return lambda: _sandwich(results.pair(database, batch), lambda: filled(raw), lambda: filled(own))

    return [act(100), act(1)]


def _submits(places: Databases, database: str, effort: Effort, results: Results, stack: ExitStack) -> list[Callable[[], None]]:
    own = Shared(places.new(database))
    stack.enter_context(closing(own))

    def act(what: str, base: Any) -> Callable[[], None]:
        stack.enter_context(closing(base))
        pair = results.submits.setdefault((database, what), Pair())
        return lambda: _sandwich(pair, lambda: base.submit(effort.seconds), lambda: own.submit(effort.seconds))

    return [act(what, base(places.new(database))) for what, base in SUBJECTS[database].items()]


def _once(places: Databases, database: str, effort: Effort, results: Results, stack: ExitStack) -> Callable[[], None]:
    own = Clocked(Once(places.new(database)))
    base = Clocked(BareStatements.on(places.new(database)))
    stack.enter_context(closing(base))
    stack.enter_context(closing(own))
    first = results.once.setdefault((database, "first"), Pair())
    again = results.once.setdefault((database, "again"), Pair())

    def act() -> None:
        before, ours, after = base.run(effort.seconds / 2), own.run(effort.seconds / 2), base.run(effort.seconds / 2)
        first.add(before[0], ours[0], after[0])
        again.add(before[1], ours[1], after[1])

    return act


def _peers(places: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    for peer in PEERS:
        if peer.name in results.absent:
            continue
        progress(peer.name)
        if find_spec(peer.library) is None:
            results.absent[peer.name] = "not installed"
            continue
        share = 0.02 if effort is QUICK else 1.0
        try:
            rates = [each.rate(places.new(each.database), share) for each in (peer.beside, peer, peer.beside)]
            results.peers.setdefault(peer.name, Pair()).around(*rates)
        except RuntimeError as error:
            results.peers.pop(peer.name, None)
            results.absent[peer.name] = str(error)


def _idle(places: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    for database in ("postgres", "sqlite"):
        progress(f"nothing to do, {database}")
        results.idle[database] = idle(places.new(database), effort.polls, effort.poll)


def _distance(places: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    for _ in range(1 if effort is QUICK else FAR_ROUNDS):
        for subject in distance.SUBJECTS:
            if find_spec(subject.library) is None and subject.name != distance.OWN:
                results.absent[subject.name] = "not installed"
                continue
            for trip in distance.TRIPS:
                progress(f"{subject.name}, {trip} ms away")
                try:
                    with distance.away(places.new("postgres"), trip) as url:
                        rate = subject.rate(url, 0.005 if effort is QUICK else 1.0)
                    results.distance.setdefault((subject.name, trip), []).append(rate)
                except RuntimeError as error:
                    results.absent[f"{subject.name}, {trip} ms away"] = str(error)


def _piles(places: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    from redrive.ledger import open_ledger

    for database in ("postgres", "sqlite"):
        for name in pile.PILES:
            with open_ledger(places.new(database), migrate=True) as small, open_ledger(places.new(database), migrate=True) as big:
                progress(f"a pile of {effort.big:,} jobs, {name}, {database}")
                pile.pile_up(small, name, effort.small)
                pile.pile_up(big, name, effort.big)
                pair = results.piles.setdefault((database, name), Pair())
                base, own = partial(pile.claims, small, effort.claims), partial(pile.claims, big, effort.claims)
                own()  # what is read for the first time is read from the disk
                for _ in range(effort.measurements):
                    _sandwich(pair, base, own)


def _tenants(places: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    from redrive.ledger import open_ledger

    for database in ("postgres", "sqlite"):
        with open_ledger(places.new(database), migrate=True) as one, open_ledger(places.new(database), migrate=True) as many:
            progress(f"{effort.big:,} jobs of {tenants.TENANTS:,} tenants, {database}")
            tenants.pile_up(one, 1, effort.big)
            tenants.pile_up(many, tenants.TENANTS, effort.big)
            pair = results.tenants.setdefault(database, Pair())
            base = partial(tenants.claims, one, 1, effort.claims)
            own = partial(tenants.claims, many, tenants.TENANTS, effort.claims)
            base(), own()  # what is read for the first time is read from the disk
            for _ in range(effort.measurements):
                _sandwich(pair, base, own)


def _fsync(folder: Path) -> Interval:
    taken = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(41):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - began) * 1000)
    return Interval.of(taken)


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
