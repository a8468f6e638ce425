"""Tables, page and picture of a run."""

from collections.abc import Sequence
from statistics import median

from benchmarks.candidate import release
from benchmarks.interval import Interval
from benchmarks.ledger_suite.targets import NAMES
from benchmarks.messages_suite.results import BATCHES, PEERS, Results
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, summary_line, table

HUES: dict[str, Hue] = {"redri": "ours", "floor": "floor"}
LIBRARY = {"taskiq": "taskiq-redis"}


def describe_machine(results: Results) -> str:
    """Describe the machine and its disk."""
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    all_tables = [table(outcomes)]
    all_tables += [_rates(results, batch) for batch in BATCHES]
    if results.growth or results.dead_letters:
        all_tables.append(_scale(results))
    if results.absent:
        all_tables.append(Table("Not measured", ("case", "reason"), list(results.absent.items())))
    return all_tables


def _rows(results: Results, batch: int) -> list[tuple[str, list[float], Interval | None]]:
    rows: list[tuple[str, list[float], Interval | None]] = []
    if results.bare.get(batch):
        rows.append(("floor without storage", results.bare[batch], None))
    for database, name in NAMES.items():
        pair = results.own.get((database, batch))
        if pair and pair.own:
            rows.append((f"floor on {name}", pair.base, None))
            rows.append((f"redrive, {name}", pair.own, pair.ratio))
    rows += [
        (_add_version(peer.name, peer.library), results.peers.get(peer.name, []), None) for peer in PEERS if peer.batch == batch
    ]
    return sorted((row for row in rows if row[1]), key=lambda row: -median(row[1]))


def _rates(results: Results, batch: int) -> Table:
    rows = [(name, _rate(samples), "" if ratio is None else f"{ratio}×") for name, samples, ratio in _rows(results, batch)]
    mode = "One message at a time" if batch == 1 else f"Batches of {batch}"
    return Table(f"{mode}, empty handler", ("case", "messages/s", "vs its floor"), rows)


def _rate(samples: Sequence[float]) -> str:
    interval = Interval.of(samples)
    return f"{interval.median:,.0f} ({interval.low:,.0f}–{interval.high:,.0f})"


def _add_version(name: str, library: str) -> str:
    return f"{name} ({release(LIBRARY.get(library, library))})".removesuffix(" ()")


def _scale(results: Results) -> Table:
    rows = []
    for database, name in NAMES.items():
        if database in results.growth:
            growth = f"{results.growth[database]:.1f} MiB"
            rows.append((f"{name}, memory growth over {results.messages:,} messages", growth))
        rows += [
            (f"{name}, {results.stored:,} dead letters, {query}", f"{milliseconds:.1f} ms")
            for (place, query), milliseconds in results.dead_letters.items()
            if place == database
        ]
    return Table("Memory and dead letters", ("case", "figure"), rows)


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: messages

Written by `make bench-messages`: {describe_machine(results)}.
Redis syncs its log to disk every second. Everything else is durable. Postgres has `fsync`, `synchronous_commit` and
`full_page_writes` on. SQLite uses WAL with `synchronous=FULL`. There are {rounds} interleaved rounds. Each measurement has
its own process, its own database and default settings. In each round, Redrive runs between two runs of its floor, and the
ratio is to the mean of both. A database is dropped after its measurement, before autovacuum slows down the next one.
{HOW_TO_READ}

The floor is a minimal consumer. It reads a batch, stores each message and its handler as done in one transaction, and then
acknowledges the batch. It has no attempts, leases, fencing tokens or retries. The floor without storage only reads and
acknowledges. Redrive stores the attempt before it starts, and then its outcome. One at a time, it reads on while its ledger
commits, so that several messages share a transaction, and acknowledges each of them after that. The other libraries acknowledge a
message after its handler, and do not store it before.

![Bars on a logarithmic scale: Redrive, minimal consumers and other libraries](messages.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def picture(results: Results) -> str:
    """Draw the results as bars."""
    panels = []
    for batch in BATCHES:
        bars = [Bar(_bar_label(name), median(samples), HUES.get(name[:5], "peer")) for name, samples, _ in _rows(results, batch)]
        if bars:
            mode = "one at a time" if batch == 1 else f"batches of {batch}"
            panels.append(Panel(f"Messages/s, {mode}", "", bars, None))
    note = f"Medians, logarithmic scale. Longer is better. {machine()}"
    return card("Messages: Redrive, minimal consumers and other libraries", "Messages per second", note, panels)


def _bar_label(name: str) -> str:
    return name.partition(" (")[0].partition(", 100 at")[0]
