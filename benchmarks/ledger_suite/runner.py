"""Measure the ledger, raw loops and other libraries, in interleaved rounds."""

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

from benchmarks.interval import Interval
from benchmarks.ledger_suite import backlog, distance, tenants
from benchmarks.ledger_suite.drain import LedgerDrain, RawPostgres, RawSQLite
from benchmarks.ledger_suite.idle import measure_idle
from benchmarks.ledger_suite.once import BareStatements, Once, Timer
from benchmarks.ledger_suite.peers import PEERS
from benchmarks.ledger_suite.results import Pair, Results
from benchmarks.ledger_suite.submitters import SUBJECTS, Shared
from benchmarks.rounds import Progress
from tests.servers.postgres import SETTINGS, VARIABLE, postgres_cluster

DURABLE = (
    "fsync=on", "synchronous_commit=on", "full_page_writes=on", "max_connections=200", "unix_socket_directories=",
    "timezone=UTC",
)  # fmt: skip


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    rounds: int
    every: int
    """Other libraries run in every Nth round."""
    seconds: float
    """Maximum of one measurement."""
    big: int
    """Jobs in the large table."""
    small: int
    claims: int
    """Claims per measurement, which is their median."""
    measurements: int
    polls: int
    poll: float = 1.0
    """Seconds between two polls."""
    settings: tuple[str, ...] = DURABLE
    """Postgres settings."""


FULL = Effort(rounds=15, every=2, seconds=0.5, big=1_000_000, small=10_000, claims=30, measurements=9, polls=10)
QUICK = Effort(
    rounds=1, every=1, seconds=0.01, big=400, small=200, claims=3, measurements=1, polls=1, poll=0.05, settings=SETTINGS
)
FAR_ROUNDS = 3
JOBS = {("postgres", 100): 5000, ("postgres", 1): 300, ("sqlite", 100): 10_000, ("sqlite", 1): 300}


class Databases:
    """Creates databases on a server and in a folder. With `ready`, they contain the tables of the ledger."""

    def __init__(self, server: str, folder: Path, *, ready: bool = False) -> None:
        self.server = server
        self.folder = folder
        self._ready = ready
        self._templates: dict[str, str] = {}
        self._name = f"bench_{uuid.uuid4().hex[:8]}_"  # unique, because other programs may use the server
        self._numbers = count()
        self._created: list[str] = []

    def new(self, kind: str) -> str:
        if self._ready and kind not in self._templates:
            from redrive.ledger import open_ledger

            template = self._new(kind, "")
            open_ledger(template, migrate=True).close()
            self._templates[kind] = template.rpartition("/")[2]
        return self._new(kind, self._templates.get(kind, ""))

    def _new(self, kind: str, template: str) -> str:
        name = f"{self._name}{next(self._numbers)}"
        if kind == "sqlite":
            if template:
                shutil.copy(self.folder / template, self.folder / f"{name}.db")
            return f"sqlite:///{self.folder}/{name}.db"
        self._run(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        self._created.append(name)
        return self.server.rsplit("/", 1)[0] + f"/{name}"

    def drop(self, url: str) -> None:
        """Drop a Postgres database: the autovacuum of its tables would slow down the next measurement."""
        name = url.rpartition("/")[2]
        if name in self._created:
            self._created.remove(name)
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def drop_all(self) -> None:
        """Drop the created Postgres databases."""
        self._run(*(f"DROP DATABASE {name} WITH (FORCE)" for name in self._created))

    def _run(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.server, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@contextmanager
def open_databases(settings: tuple[str, ...]) -> Iterator[Databases]:
    """Start Postgres and create a folder for SQLite. A quick run uses the server of the environment, if one is set."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-bench-"))
    existing = os.environ.get(VARIABLE) if settings is SETTINGS else None
    try:
        if existing:
            created = Databases(existing, folder, ready=True)
            try:
                yield created
            finally:
                created.drop_all()
            return
        with postgres_cluster() as cluster, cluster.running(settings) as server:
            yield Databases(server, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(databases: Databases, effort: Effort, only: list[str], progress: Progress) -> Results:
    """Measure everything, or only the named parts."""
    results = Results(fsync=measure_fsync(databases.folder))
    parts: dict[str, Callable[[], None]] = {
        "rounds": lambda: _rounds(databases, effort, only, results, progress),
        "idle": lambda: _idle(databases, effort, results, progress),
        "backlogs": lambda: _backlogs(databases, effort, results, progress),
        "tenants": lambda: _tenants(databases, effort, results, progress),
        "distance": lambda: _distance(databases, effort, results, progress),
    }
    for name, part in parts.items():
        if not only or name in only or (name == "rounds" and set(only) - set(parts)):
            part()
    return results


def _rounds(databases: Databases, effort: Effort, only: list[str], results: Results, progress: Progress) -> None:
    with ExitStack() as stack:
        measurements: dict[str, list[Callable[[], None]]] = {"drains": [], "submits": [], "once": []}
        for database in ("postgres", "sqlite"):
            measurements["drains"] += _drains(databases, database, effort, results, stack)
            measurements["submits"] += _submits(databases, database, effort, results, stack)
            try:
                measurements["once"].append(_once(databases, database, effort, results, stack))
            except ModuleNotFoundError as missing:
                results.absent["`once`"] = f"not installed ({missing})"
        named = [name for name in only if name in (*measurements, "peers")]
        chosen = [measurement for name, group in measurements.items() if not named or name in named for measurement in group]
        for number in range(effort.rounds):
            progress(f"round {number + 1} of {effort.rounds}")
            for measurement in random.sample(chosen, len(chosen)):
                measurement()
            if number % effort.every == 0 and (not named or "peers" in named):
                _peers(databases, effort, results, progress)


def _measure_pair(pair: Pair, base: Callable[[], float], own: Callable[[], float]) -> None:
    before = base()
    pair.add(before, own(), base())


def _drains(databases: Databases, database: str, effort: Effort, results: Results, stack: ExitStack) -> list[Callable[[], None]]:
    raw: Any = RawPostgres(databases.new(database)) if database == "postgres" else RawSQLite(_file(databases.new(database)))
    own: Any = LedgerDrain(databases.new(database))
    stack.enter_context(closing(raw))
    stack.enter_context(closing(own))

    def measurement(batch: int) -> Callable[[], None]:
        jobs = JOBS[database, batch]
        if effort is QUICK:
            jobs = max(jobs // 50, batch)

        def measure(subject: Any) -> float:
            subject.fill(jobs)
            rate: float = subject.drain(jobs, batch, effort.seconds)
            return rate

        return lambda: _measure_pair(results.pair(database, batch), lambda: measure(raw), lambda: measure(own))

    return [measurement(100), measurement(1)]


def _submits(databases: Databases, database: str, effort: Effort, results: Results, stack: ExitStack) -> list[Callable[[], None]]:
    own = Shared(databases.new(database))
    stack.enter_context(closing(own))

    def measurement(what: str, base: Any) -> Callable[[], None]:
        stack.enter_context(closing(base))
        pair = results.submits.setdefault((database, what), Pair())
        return lambda: _measure_pair(pair, lambda: base.submit(effort.seconds), lambda: own.submit(effort.seconds))

    return [measurement(what, base(databases.new(database))) for what, base in SUBJECTS[database].items()]


def _once(databases: Databases, database: str, effort: Effort, results: Results, stack: ExitStack) -> Callable[[], None]:
    own = Timer(Once(databases.new(database)))
    base = Timer(BareStatements.on(databases.new(database)))
    stack.enter_context(closing(base))
    stack.enter_context(closing(own))
    first = results.once.setdefault((database, "first"), Pair())
    again = results.once.setdefault((database, "again"), Pair())

    def measurement() -> None:
        before, ours, after = base.run(effort.seconds / 2), own.run(effort.seconds / 2), base.run(effort.seconds / 2)
        first.add(before[0], ours[0], after[0])
        again.add(before[1], ours[1], after[1])

    return measurement


def _peers(databases: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    for peer in PEERS:
        if peer.name in results.absent:
            continue
        progress(peer.name)
        if find_spec(peer.library) is None:
            results.absent[peer.name] = "not installed"
            continue
        share = 0.02 if effort is QUICK else 1.0
        try:
            rates = [each.rate(databases.new(each.database), share) for each in (peer.counterpart, peer, peer.counterpart)]
            results.peers.setdefault(peer.name, Pair()).around(*rates)
        except RuntimeError as error:
            results.peers.pop(peer.name, None)
            results.absent[peer.name] = str(error)


def _idle(databases: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    for database in ("postgres", "sqlite"):
        progress(f"idle worker, {database}")
        results.idle[database] = measure_idle(databases.new(database), effort.polls, effort.poll)


def _distance(databases: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    for _ in range(1 if effort is QUICK else FAR_ROUNDS):
        for subject in distance.SUBJECTS:
            if find_spec(subject.library) is None and subject.name != distance.OWN:
                results.absent[subject.name] = "not installed"
                continue
            for trip in distance.TRIPS:
                progress(f"{subject.name}, round trip of {trip} ms")
                try:
                    with distance.add_latency(databases.new("postgres"), trip) as url:
                        rate = subject.rate(url, 0.005 if effort is QUICK else 1.0)
                    results.distance.setdefault((subject.name, trip), []).append(rate)
                except RuntimeError as error:
                    results.absent[f"{subject.name}, round trip of {trip} ms"] = str(error)


def _backlogs(databases: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    from redrive.ledger import open_ledger

    for database in ("postgres", "sqlite"):
        for name in backlog.BACKLOGS:
            with (
                open_ledger(databases.new(database), migrate=True) as small,
                open_ledger(databases.new(database), migrate=True) as big,
            ):
                progress(f"{effort.big:,} {name} jobs, {database}")
                backlog.insert_jobs(small, name, effort.small)
                backlog.insert_jobs(big, name, effort.big)
                pair = results.backlogs.setdefault((database, name), Pair())
                base, own = (
                    partial(backlog.measure_claims, small, effort.claims),
                    partial(backlog.measure_claims, big, effort.claims),
                )
                own()  # warm the cache
                for _ in range(effort.measurements):
                    _measure_pair(pair, base, own)


def _tenants(databases: Databases, effort: Effort, results: Results, progress: Progress) -> None:
    from redrive.ledger import open_ledger

    for database in ("postgres", "sqlite"):
        with (
            open_ledger(databases.new(database), migrate=True) as single,
            open_ledger(databases.new(database), migrate=True) as shared,
        ):
            progress(f"{effort.big:,} jobs of {tenants.TENANTS:,} tenants, {database}")
            tenants.insert_jobs(single, 1, effort.big)
            tenants.insert_jobs(shared, tenants.TENANTS, effort.big)
            pair = results.tenants.setdefault(database, Pair())
            base = partial(tenants.measure_claims, single, 1, effort.claims)
            own = partial(tenants.measure_claims, shared, tenants.TENANTS, effort.claims)
            base(), own()  # warm the cache
            for _ in range(effort.measurements):
                _measure_pair(pair, base, own)


def measure_fsync(folder: Path) -> Interval:
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(41):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return Interval.of(times)


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
