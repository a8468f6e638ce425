"""Tables, page and picture of a run."""

from collections.abc import Iterable
from statistics import median

from benchmarks.candidate import release
from benchmarks.interval import Interval, number
from benchmarks.ledger_suite.distance import TRIPS
from benchmarks.ledger_suite.peers import PEERS
from benchmarks.ledger_suite.results import Pair, Results
from benchmarks.ledger_suite.submitters import BASES
from benchmarks.ledger_suite.targets import NAMES, TARGETS
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, summary_line, table

FLOORS = {"postgres": "raw SKIP LOCKED loop, psycopg", "sqlite": "raw loop, sqlite3, synchronous=FULL"}


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    all_tables = [table(outcomes), *(_drain(results, database, batch) for database, batch in sorted(results.drains))]
    all_tables += [_pairs(*head, pairs) for head, pairs in _series(results) if pairs]
    all_tables += [_idle(results)] if results.idle else []
    all_tables += [_far(results)] if results.distance else []
    if results.absent:
        all_tables.append(Table("Not measured", ("case", "reason"), list(results.absent.items())))
    return all_tables


def describe_machine(results: Results) -> str:
    """Describe the machine and its disk. If two cases wait for the disk only, their ratio is 1."""
    return f"{machine()}" + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: ledger

Written by `make bench-ledger`: {describe_machine(results)}.
Everything is durable. Postgres has `fsync`, `synchronous_commit` and `full_page_writes` on. SQLite uses WAL with
`synchronous=FULL`. There are {rounds} interleaved rounds. In each round, the ledger runs between two runs of the raw loop,
and the ratio is to the mean of both. {HOW_TO_READ}

Each other library has its own process and its own database, and runs between two runs of the ledger. Its jobs are submitted one
by one or in batches, as they are processed later. Then the clock starts.

The raw loop has no keys, leases, fencing tokens, counters or dead letters. It commits twice for each batch, after the claim and
after the work. The ledger settles a batch in the transaction that claims the next one.

![Bars on a logarithmic scale: the ledger, raw loops and other libraries](ledger.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def _rate(rates: list[float]) -> str:
    interval = Interval.of(rates)
    return f"{interval.median:,.0f} ({interval.low:,.0f}–{interval.high:,.0f})"


def _peers(database: str, batch: int) -> list[str]:
    """Names of the comparable libraries. A library without batches is also compared with batches."""
    return [
        peer.name for peer in PEERS if peer.database == database and (peer.batch > 1) == (batch > 1 and database == "postgres")
    ]


def _drain(results: Results, database: str, batch: int) -> Table:
    pair = results.drains[database, batch]
    floor = median(pair.base)
    rows = [
        (FLOORS[database], _rate(pair.base), "1"),
        ("redrive ledger", _rate(pair.own), str(pair.ratio)),
        *((_add_version(name), _rate(results.peers[name].base), number(median(results.peers[name].base) / floor))
          for name in _peers(database, batch) if name in results.peers),
    ]  # fmt: skip
    how = "in batches of 100" if batch > 1 else "one at a time"
    return Table(f"{NAMES[database]}, empty jobs, {how}", ("case", "jobs/s", "vs raw loop"), rows)


def _add_version(name: str) -> str:
    library = name.partition(",")[0].partition(" ")[0]
    return f"{name} ({release(library.lower())})".removesuffix(" ()")


def _series(results: Results) -> Iterable[tuple[tuple[str, str, str, str], list[tuple[str, Pair]]]]:
    yield (
        ("32 threads, one job per submit", "32 connections, jobs/s", "one ledger, jobs/s", "ratio"),
        [(f"{NAMES[database]}, {what}", pair) for (database, what), pair in results.submits.items()],
    )
    calls = {"first": "first call", "again": "repeated call"}
    yield (
        ("`once`", "bare statements, µs", "redrive, µs", "ratio"),
        [(f"{NAMES[database]}, {calls[call]}", pair) for (database, call), pair in results.once.items()],
    )
    yield (
        ("Claim of 100 jobs in a large table", "10,000 jobs, ms", "1,000,000 jobs, ms", "ratio"),
        [(f"{NAMES[database]}, {backlog}", pair) for (database, backlog), pair in results.backlogs.items()],
    )
    yield (
        ("Fair claim of 100 jobs among 1,000,000", "one tenant, ms", "1,000 tenants, ms", "ratio"),
        [(NAMES[database], pair) for database, pair in results.tenants.items()],
    )


def _pairs(title: str, base: str, own: str, ratio: str, pairs: list[tuple[str, Pair]]) -> Table:
    rows = [(name, str(Interval.of(pair.base)), str(Interval.of(pair.own)), str(pair.ratio)) for name, pair in pairs if pair.own]
    return Table(title, ("case", base, own, ratio), rows)


def _idle(results: Results) -> Table:
    rows = [
        (NAMES[database], str(worker.polls), str(worker.queries), number(worker.cpu)) for database, worker in results.idle.items()
    ]
    note = (
        "The worker waits for notifications and polls once per second. On Postgres, all statements are counted. On SQLite, "
        "transactions are counted. There the worker also reads the version number of the file every 20 to 50 ms."
    )
    return Table("Idle worker", ("case", "polls", "queries", "CPU, %"), rows, note)


def _far(results: Results) -> Table:
    names = dict.fromkeys(name for name, _ in results.distance)
    rows = [(name, *(_rate(rates) if (rates := results.distance.get((name, trip))) else "-" for trip in TRIPS)) for name in names]
    note = "Empty jobs. A relay delays each direction by half of the round trip."
    return Table("Network round trip to Postgres, jobs/s", ("case", *(f"{trip} ms" for trip in TRIPS)), rows, note)


def picture(results: Results) -> str:
    """Draw the results as bars."""
    panels = []
    for database, batch in sorted(results.drains):
        pair = results.drains[database, batch]
        floor = median(pair.base)
        bars = [Bar("raw loop", floor, "floor"), Bar("redrive", median(pair.own), "ours")]
        bars += [
            Bar(name.split(",")[0], median(results.peers[name].base), "peer")
            for name in _peers(database, batch)
            if name in results.peers
        ]
        least = next(t.limit for t in TARGETS if t.what.startswith(f"{NAMES[database]}, {_how(batch)}, vs raw"))
        bars.sort(key=lambda bar: -bar.value)
        panels.append(Panel(f"{NAMES[database]}, {_how(batch)}: jobs/s", "", bars, round(least * floor)))
    for (database, what), pair in results.submits.items():
        if what != BASES[database] or not pair.own:
            continue
        base = median(pair.base)
        bars = [Bar("one ledger", median(pair.own), "ours"), Bar("32 connections", base, "floor")]
        panels.append(Panel(f"{NAMES[database]}, 32 submitters: jobs/s", "", bars, round(3 * base)))
    note = f"Medians, all durable, logarithmic scale. Longer is better. Dashed line: target. {machine()}"
    return card("Ledger: Redrive, raw loops and other libraries", "Ledger: jobs per second", note, panels)


def _how(batch: int) -> str:
    return "batches of 100" if batch > 1 else "one at a time"
