"""The tables and the picture of a run."""

from collections.abc import Sequence
from statistics import median

from benchmarks.candidate import release
from benchmarks.durable.targets import NAMES
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.streamed.results import BATCHES, PEERS, Results
from benchmarks.table import Table
from benchmarks.target import Judgement, last_line, table

HUES: dict[str, Hue] = {"redri": "ours", "floor": "floor"}
LIBRARY = {"taskiq": "taskiq-redis"}


def place(results: Results) -> str:
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, judgements: list[Judgement]) -> list[Table]:
    found = [table(judgements)]
    found += [_rates(results, batch) for batch in BATCHES]
    if results.growth or results.letters:
        found.append(_large(results))
    if results.absent:
        found.append(Table("Not measured", ("what", "why"), list(results.absent.items())))
    return found


def _rows(results: Results, batch: int) -> list[tuple[str, list[float], Interval | None]]:
    rows: list[tuple[str, list[float], Interval | None]] = []
    if results.bare.get(batch):
        rows.append(("floor: read and acknowledge, written nowhere", results.bare[batch], None))
    for database, name in NAMES.items():
        pair = results.own.get((database, batch))
        if pair and pair.own:
            rows.append((f"floor: {name}, written as done, then acknowledged", pair.base, None))
            rows.append((f"redrive, {name}", pair.own, pair.ratio))
    rows += [(_named(peer.name, peer.library), results.peers.get(peer.name, []), None) for peer in PEERS if peer.batch == batch]
    return sorted((row for row in rows if row[1]), key=lambda row: -median(row[1]))


def _rates(results: Results, batch: int) -> Table:
    rows = [(name, _said(taken), "" if ratio is None else f"{ratio}×") for name, taken, ratio in _rows(results, batch)]
    many = "One message at a time" if batch == 1 else f"Batches of {batch}"
    return Table(f"{many}, one handler that does nothing", ("what", "messages/s", "to its floor"), rows)


def _said(taken: Sequence[float]) -> str:
    found = Interval.of(taken)
    return f"{found.median:,.0f} ({found.low:,.0f}–{found.high:,.0f})"


def _named(name: str, library: str) -> str:
    return f"{name} ({release(LIBRARY.get(library, library))})".removesuffix(" ()")


def _large(results: Results) -> Table:
    rows = []
    for database, name in NAMES.items():
        if database in results.growth:
            grown = f"{results.growth[database]:.1f} MiB"
            rows.append((f"{name}: growth of the process over {results.messages:,} messages", grown))
        rows += [
            (f"{name}: {results.pile:,} dead letters: {what}", f"{taken:.1f} ms")
            for (of, what), taken in results.letters.items()
            if of == database
        ]
    return Table("Much of it", ("what", "figure"), rows)


def markdown(results: Results, judgements: list[Judgement], rounds: int) -> str:
    head = f"""\
# What messages cost

Written by `make bench-messages`: {place(results)}.
Redis writes its log every second. Everything else is durable: Postgres with `fsync`, `synchronous_commit` and
`full_page_writes` on, SQLite in WAL with `synchronous=FULL`. {rounds} interleaved rounds, each measurement in a process and on a
database of its own, with default settings. Medians, and in brackets the interval that holds the true median in 95 of 100 runs;
ratios are taken round by round, between two runs of the floor. A target counts as missed only where the whole interval misses it.

The floor of our own contract reads, writes each message and its handler's run as done in one transaction, and acknowledges: no
attempt, lease, fence or retry is in it. Redrive writes that the attempt begins before it does, and then that it is done. The
peers acknowledge a message after its handler; none of them writes it anywhere before that.

![Bars on a logarithmic scale: Redrive beside the floors and its peers](messages.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, judgements))
    return f"{head}\n{body}\n\n{last_line(judgements).capitalize()}.\n"


def picture(results: Results) -> str:
    """The same as bars."""
    panels = []
    for batch in BATCHES:
        bars = [Bar(_short(name), median(taken), HUES.get(name[:5], "peer")) for name, taken, _ in _rows(results, batch)]
        if bars:
            many = "one at a time" if batch == 1 else f"batches of {batch}"
            panels.append(Panel(f"messages/s, {many}", "", bars, None))
    note = f"Messages a second: longer is better. {machine()}"
    return card("What messages cost: Redrive beside the floors and its peers", "What a consumer does in a second", note, panels)


def _short(name: str) -> str:
    if name.startswith("floor: read"):
        return "floor: Redis alone"
    return name.removesuffix(", written as done, then acknowledged").partition(" (")[0].partition(", 100 at")[0]
