"""The tables and the picture of a run."""

from collections.abc import Iterable
from statistics import median

from benchmarks.candidate import release
from benchmarks.durable.distance import TRIPS
from benchmarks.durable.peers import PEERS
from benchmarks.durable.results import Pair, Results
from benchmarks.durable.submitters import JUDGED
from benchmarks.durable.targets import NAMES, TARGETS
from benchmarks.interval import Interval, number
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Judgement, last_line, table

FLOORS = {"postgres": "raw SKIP LOCKED loop, psycopg", "sqlite": "raw loop, sqlite3, synchronous=FULL"}


def tables(results: Results, judgements: list[Judgement]) -> list[Table]:
    found = [table(judgements), *(_drain(results, database, batch) for database, batch in sorted(results.drains))]
    found += [_pairs(*head, pairs) for head, pairs in _series(results) if pairs]
    found += [_idle(results)] if results.idle else []
    found += [_far(results)] if results.distance else []
    if results.absent:
        found.append(Table("Not measured", ("what", "why"), list(results.absent.items())))
    return found


def place(results: Results) -> str:
    """Where it was measured. What a commit costs is the disk's: of two figures that wait for it alone, the ratio is 1."""
    return f"{machine()}" + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def markdown(results: Results, judgements: list[Judgement], rounds: int) -> str:
    head = f"""\
# What the ledger costs

Written by `make bench-ledger`: {place(results)}.
Everything is durable: Postgres with `fsync`, `synchronous_commit` and `full_page_writes` on, SQLite in WAL with
`synchronous=FULL`. {rounds} interleaved rounds; in each of them the ledger stands
between two runs of the raw loop and is given as a ratio to them: the median, and in brackets the interval that holds the
true median in 95 of 100 runs. A target counts as missed only where the whole interval misses it.

Other libraries run in a process and on a database of their own, each between two runs of the ledger in just that way: jobs are
submitted as they are worked, one by one or in batches, and then the clock starts.

The raw loop has no keys, leases, fences, counts or dead letters, and commits twice for each batch: once to claim, once when it is
done. The ledger settles one batch in the transaction that claims the next.

![Bars on a logarithmic scale: the ledger beside raw loops and its peers](ledger.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, judgements))
    return f"{head}\n{body}\n\n{last_line(judgements).capitalize()}.\n"


def _rate(rates: list[float]) -> str:
    found = Interval.of(rates)
    return f"{found.median:,.0f} ({found.low:,.0f}–{found.high:,.0f})"


def _shown(database: str, batch: int) -> list[str]:
    """The peers to stand beside it: those that work so, and for batches those that have nothing better."""
    return [
        peer.name for peer in PEERS if peer.database == database and (peer.batch > 1) == (batch > 1 and database == "postgres")
    ]


def _drain(results: Results, database: str, batch: int) -> Table:
    pair = results.drains[database, batch]
    floor = median(pair.base)
    rows = [
        (FLOORS[database], _rate(pair.base), "1"),
        ("redrive ledger", _rate(pair.own), str(pair.ratio)),
        *((_named(name), _rate(results.peers[name].base), number(median(results.peers[name].base) / floor))
          for name in _shown(database, batch) if name in results.peers),
    ]  # fmt: skip
    how = "in batches of 100" if batch > 1 else "one at a time"
    return Table(f"{NAMES[database]}: jobs that do nothing, {how}", ("what", "jobs/s", "to the raw loop"), rows)


def _named(name: str) -> str:
    library = name.partition(",")[0].partition(" ")[0]
    return f"{name} ({release(library.lower())})".removesuffix(" ()")


def _series(results: Results) -> Iterable[tuple[tuple[str, str, str, str], list[tuple[str, Pair]]]]:
    yield (
        ("32 threads submit, one job a time", "own connections, jobs/s", "one ledger, jobs/s", "ratio"),
        [(f"{NAMES[database]}, {what} by each", pair) for (database, what), pair in results.submits.items()],
    )
    calls = {"first": "first call", "again": "repeated call"}
    yield (
        ("`once`", "bare statements, µs", "redrive, µs", "ratio"),
        [(f"{NAMES[database]}, {calls[call]}", pair) for (database, call), pair in results.once.items()],
    )
    yield (
        ("A claim of 100 beside a pile", "beside 10,000, ms", "beside 1,000,000, ms", "ratio"),
        [(f"{NAMES[database]}, {pile}", pair) for (database, pile), pair in results.piles.items()],
    )
    yield (
        ("A fair claim of 100 among 1,000,000 jobs", "one tenant, ms", "1,000 tenants, ms", "ratio"),
        [(NAMES[database], pair) for database, pair in results.tenants.items()],
    )


def _pairs(title: str, base: str, own: str, ratio: str, pairs: list[tuple[str, Pair]]) -> Table:
    rows = [(name, str(Interval.of(pair.base)), str(Interval.of(pair.own)), str(pair.ratio)) for name, pair in pairs if pair.own]
    return Table(title, ("what", base, own, ratio), rows)


def _idle(results: Results) -> Table:
    rows = [
        (NAMES[database], str(found.polls), str(found.queries), number(found.cpu)) for database, found in results.idle.items()
    ]
    note = (
        "A worker that waits to be woken and looks by itself once a second. On Postgres all statements are counted, on SQLite "
        "transactions: there it sees by the file's version number, every 20 to 50 ms, whether anybody has written."
    )
    return Table("Nothing to do", ("what", "polls", "queries", "processor, %"), rows, note)


def _far(results: Results) -> Table:
    names = dict.fromkeys(name for name, _ in results.distance)
    rows = [(name, *(_rate(rates) if (rates := results.distance.get((name, trip))) else "-" for trip in TRIPS)) for name in names]
    note = "Jobs that do nothing, through a relay that delays each way by half of the round trip."
    return Table("Far from Postgres, jobs/s", ("what", *(f"{trip} ms" for trip in TRIPS)), rows, note)


def picture(results: Results) -> str:
    """The same as bars."""
    panels = []
    for database, batch in sorted(results.drains):
        pair = results.drains[database, batch]
        floor = median(pair.base)
        bars = [Bar("raw loop", floor, "floor"), Bar("redrive", median(pair.own), "ours")]
        bars += [
            Bar(name.split(",")[0], median(results.peers[name].base), "peer")
            for name in _shown(database, batch)
            if name in results.peers
        ]
        least = next(t.limit for t in TARGETS if t.what.startswith(f"{NAMES[database]}, {_how(batch)}, to the raw"))
        bars.sort(key=lambda bar: -bar.value)
        panels.append(Panel(f"{NAMES[database]}, {_how(batch)}: jobs/s", "", bars, round(least * floor)))
    for (database, what), pair in results.submits.items():
        if what != JUDGED[database] or not pair.own:
            continue
        own = median(pair.base)
        bars = [Bar("one ledger", median(pair.own), "ours"), Bar("own connections", own, "floor")]
        panels.append(Panel(f"{NAMES[database]}, 32 submit, one each: jobs/s", "", bars, round(3 * own)))
    note = f"Jobs a second, medians, all durable, logarithmic scale, longer is better; dashed: the target. {machine()}"
    return card("What the ledger costs: Redrive beside raw loops and its peers", "What the ledger does in a second", note, panels)


def _how(batch: int) -> str:
    return "batches of 100" if batch > 1 else "one at a time"
