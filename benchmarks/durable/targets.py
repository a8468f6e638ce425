"""What the ledger promises, and whether a run bears it out."""

from collections.abc import Callable

from benchmarks.durable.distance import OWN
from benchmarks.durable.results import Results
from benchmarks.durable.submitters import JUDGED
from benchmarks.interval import Interval
from benchmarks.target import Promise


def _drain(database: str, batch: int) -> Callable[[Results], Interval | None]:
    def read(results: Results) -> Interval | None:
        pair = results.drains.get((database, batch))
        return pair.ratio if pair else None

    return read


def _ahead(database: str, batch: int, peer: str) -> Promise[Results]:
    return Promise(
        f"{NAMES[database]}, {'batches of 100' if batch > 1 else 'one at a time'}, to {peer}",
        "≥",
        1,
        "×",
        lambda results: results.peers[peer].ratio if peer in results.peers else None,
    )


def _submit(database: str) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.submits.get((database, JUDGED[database]))
        return pair.ratio if pair else None

    return Promise(f"{NAMES[database]}, 32 submitters through one ledger, to 32 own connections", "≥", 3, "×", read)


def _once(database: str, call: str) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.once.get((database, call))
        return pair.ratio if pair else None

    what = "first call" if call == "first" else "repeated call"
    return Promise(f"{NAMES[database]}, `once`, {what}, to bare statements", "≤", 1.5, "×", read)


def _repeated(results: Results) -> Interval | None:
    pair = results.once.get(("sqlite", "again"))
    return Interval.of(pair.own) if pair and pair.own else None


def _idle(database: str) -> list[Promise[Results]]:
    def queries(results: Results) -> Interval | None:
        found = results.idle.get(database)
        return Interval.exactly(found.queries / found.polls) if found else None

    def cpu(results: Results) -> Interval | None:
        found = results.idle.get(database)
        return Interval.exactly(found.cpu) if found else None

    return [
        Promise(f"{NAMES[database]}, nothing to do: queries a poll", "≤", 1, "", queries),
        Promise(f"{NAMES[database]}, nothing to do: processor", "≤", 1, " %", cpu),
    ]


def _pile(database: str, pile: str) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.piles.get((database, pile))
        return pair.ratio if pair else None

    said = {"ended": "ended jobs", "due": "due jobs", "future": "jobs of the far future"}[pile]
    return Promise(f"{NAMES[database]}, a claim of 100 beside 1,000,000 {said}, to 10,000", "≤", 1.5, "×", read)


def _tenants(database: str) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        pair = results.tenants.get(database)
        return pair.ratio if pair else None

    return Promise(f"{NAMES[database]}, a claim of 100 with 1,000 tenants, to one tenant", "≤", 1.5, "×", read)


def _far(trip: int, least: float) -> Promise[Results]:
    def read(results: Results) -> Interval | None:
        near, far = results.distance.get((OWN, 0)), results.distance.get((OWN, trip))
        return Interval.of([there / here for here, there in zip(near, far, strict=True)]) if near and far else None

    return Promise(f"Postgres, a worker {trip} ms away, to 0 ms", "≥", least, "×", read)


NAMES = {"postgres": "Postgres", "sqlite": "SQLite"}
TARGETS = (
    Promise("Postgres, batches of 100, to the raw loop", "≥", 0.6, "×", _drain("postgres", 100)),
    Promise("Postgres, one at a time, to the raw loop", "≥", 0.9, "×", _drain("postgres", 1)),
    _ahead("postgres", 100, "pgqueuer, batches of 100"),
    _ahead("postgres", 100, "procrastinate, 10 at once"),
    _ahead("postgres", 100, "DBOS queue"),
    _ahead("postgres", 1, "pgqueuer, one at a time"),
    _ahead("postgres", 1, "procrastinate, one at a time"),
    Promise("SQLite, batches of 100, to the raw loop", "≥", 0.55, "×", _drain("sqlite", 100)),
    Promise("SQLite, one at a time, to the raw loop", "≥", 1, "×", _drain("sqlite", 1)),
    _ahead("sqlite", 1, "huey with fsync"),
    _submit("postgres"),
    _submit("sqlite"),
    _once("postgres", "first"),
    _once("sqlite", "first"),
    _once("postgres", "again"),
    Promise("SQLite, `once`, repeated call", "≤", 50, " µs", _repeated),
    *_idle("postgres"),
    *_idle("sqlite"),
    _far(20, 0.5),
    _far(100, 0.2),
    *(_pile(database, pile) for database in NAMES for pile in ("ended", "due", "future")),
    *(_tenants(database) for database in NAMES),
)
