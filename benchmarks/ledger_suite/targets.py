"""Targets of the ledger."""

from collections.abc import Callable

from benchmarks.interval import Interval
from benchmarks.ledger_suite.distance import OWN
from benchmarks.ledger_suite.results import Results
from benchmarks.ledger_suite.submitters import BASES
from benchmarks.target import MeasuredTarget


def _drain(database: str, batch: int) -> Callable[[Results], Interval | None]:
    def read(results: Results) -> Interval | None:
        pair = results.drains.get((database, batch))
        return pair.ratio if pair else None

    return read


def _peer(database: str, batch: int, peer: str) -> MeasuredTarget[Results]:
    return MeasuredTarget(
        f"{NAMES[database]}, {'batches of 100' if batch > 1 else 'one at a time'}, vs {peer}",
        "≥",
        1,
        "×",
        lambda results: results.peers[peer].ratio if peer in results.peers else None,
    )


def _submit(database: str) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.submits.get((database, BASES[database]))
        return pair.ratio if pair else None

    return MeasuredTarget(f"{NAMES[database]}, 32 submitters with one ledger vs 32 connections", "≥", 3, "×", read)


def _once(database: str, call: str) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.once.get((database, call))
        return pair.ratio if pair else None

    what = "first call" if call == "first" else "repeated call"
    return MeasuredTarget(f"{NAMES[database]}, `once`, {what} vs bare statements", "≤", 1.5, "×", read)


def _repeated(results: Results) -> Interval | None:
    pair = results.once.get(("sqlite", "again"))
    return Interval.of(pair.own) if pair and pair.own else None


def _idle(database: str) -> list[MeasuredTarget[Results]]:
    def queries(results: Results) -> Interval | None:
        worker = results.idle.get(database)
        return Interval.exactly(worker.queries / worker.polls) if worker else None

    def cpu(results: Results) -> Interval | None:
        worker = results.idle.get(database)
        return Interval.exactly(worker.cpu) if worker else None

    return [
        MeasuredTarget(f"{NAMES[database]}, idle, queries per poll", "≤", 1, "", queries),
        MeasuredTarget(f"{NAMES[database]}, idle, CPU", "≤", 1, " %", cpu),
    ]


def _backlog(database: str, backlog: str) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.backlogs.get((database, backlog))
        return pair.ratio if pair else None

    return MeasuredTarget(f"{NAMES[database]}, claim of 100 with 1,000,000 {backlog} jobs vs 10,000", "≤", 1.5, "×", read)


def _tenants(database: str) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.tenants.get(database)
        return pair.ratio if pair else None

    return MeasuredTarget(f"{NAMES[database]}, claim of 100 with 1,000 tenants vs 1 tenant", "≤", 1.5, "×", read)


def _far(trip: int, limit: float) -> MeasuredTarget[Results]:
    def read(results: Results) -> Interval | None:
        near, far = results.distance.get((OWN, 0)), results.distance.get((OWN, trip))
        return (
            Interval.of([far_rate / near_rate for near_rate, far_rate in zip(near, far, strict=True)]) if near and far else None
        )

    return MeasuredTarget(f"Postgres, round trip of {trip} ms vs 0 ms", "≥", limit, "×", read)


NAMES = {"postgres": "Postgres", "sqlite": "SQLite"}
TARGETS = (
    MeasuredTarget("Postgres, batches of 100, vs raw loop", "≥", 0.6, "×", _drain("postgres", 100)),
    MeasuredTarget("Postgres, one at a time, vs raw loop", "≥", 0.9, "×", _drain("postgres", 1)),
    _peer("postgres", 100, "pgqueuer, batches of 100"),
    _peer("postgres", 100, "procrastinate, 10 at once"),
    _peer("postgres", 100, "DBOS queue"),
    _peer("postgres", 1, "pgqueuer, one at a time"),
    _peer("postgres", 1, "procrastinate, one at a time"),
    MeasuredTarget("SQLite, batches of 100, vs raw loop", "≥", 0.55, "×", _drain("sqlite", 100)),
    MeasuredTarget("SQLite, one at a time, vs raw loop", "≥", 1, "×", _drain("sqlite", 1)),
    _peer("sqlite", 1, "huey with fsync"),
    _submit("postgres"),
    _submit("sqlite"),
    _once("postgres", "first"),
    _once("sqlite", "first"),
    _once("postgres", "again"),
    MeasuredTarget("SQLite, `once`, repeated call", "≤", 50, " µs", _repeated),
    *_idle("postgres"),
    *_idle("sqlite"),
    _far(20, 0.5),
    _far(100, 0.2),
    *(_backlog(database, backlog) for database in NAMES for backlog in ("ended", "due", "future")),
    *(_tenants(database) for database in NAMES),
)
