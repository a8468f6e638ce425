"""The tables and the picture of a run."""

from statistics import median

from benchmarks.candidate import release
from benchmarks.commanded.results import OURS, Case, Results
from benchmarks.durable.targets import NAMES
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Judgement, last_line, table


def place(results: Results) -> str:
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, judgements: list[Judgement]) -> list[Table]:
    found = [table(judgements)]
    for database in ("postgres", "sqlite"):
        found.append(_rates(results.rates, database, "that do nothing"))
        if _of(results.of_20_ms, database):
            found.append(_rates(results.of_20_ms, database, "of 20 ms"))
        found.append(_latencies(results, database))
    if results.absent:
        found.append(Table("Not measured", ("what", "why"), list(results.absent.items())))
    return found


def _of(figures: dict[Case, list[float]], database: str) -> list[tuple[str, list[float]]]:
    return [(case.name, taken) for case, taken in figures.items() if case.database == database and taken]


def _rates(figures: dict[Case, list[float]], database: str, which: str) -> Table:
    rows = []
    for name, taken in sorted(_of(figures, database), key=lambda one: -median(one[1])):
        found = Interval.of(taken)
        rows.append((_named(name), f"{found.median:,.0f} ({found.low:,.0f}–{found.high:,.0f})"))
    return Table(f"{NAMES[database]}: commands {which}, through the whole worker", ("what", "commands/s"), rows)


def _latencies(results: Results, database: str) -> Table:
    rows = [
        (_named(name), str(Interval.of(taken)))
        for name, taken in sorted(_of(results.latencies, database), key=lambda one: median(one[1]))
    ]
    return Table(f"{NAMES[database]}: from submit to start on an idle worker", ("what", "p50, ms"), rows)


def _named(name: str) -> str:
    library = name.partition(",")[0].partition(" ")[0]
    return name if library == OURS else f"{name} ({release(library.lower())})".removesuffix(" ()")


def markdown(results: Results, judgements: list[Judgement], rounds: int) -> str:
    head = f"""\
# What durable commands cost

Written by `make bench-commands`: {place(results)}.
Everything is durable: Postgres with `fsync`, `synchronous_commit` and `full_page_writes` on, SQLite in WAL with
`synchronous=FULL`. There are {rounds} interleaved rounds. Each measurement has its own process, its own database and one worker.
Most commands are empty, so the figures show the overhead per command. The commands of 20 ms sleep for that time, so the figures
show what the threads and the event loop of one worker allow. Figures are medians. The brackets have the interval that
contains the true median in 95 of 100 runs. Ratios are taken round by round. A target is missed only if the whole interval
misses it.

| worker | settings, otherwise the defaults |
| --- | --- |
| redrive | defaults: 8 threads for sync commands, one event loop for async commands |
| pgqueuer | `batch_size=100` for commands/s (default: 10), `batch_size=10` for the time to start, async functions |
| procrastinate | `concurrency=10` (default: 1), no LISTEN for commands/s, defaults for the time to start, async functions |
| DBOS | queue with `polling_interval_sec=0.05` (default: 1), sync workflows |
| huey | `fsync=True`, `results=False`, 1 thread (the default), sync functions |

All except DBOS find the commands in the queue when the clock starts. DBOS enqueues them while it runs, because its workers
have started already. huey deletes a task when it starts it. The others store how it ended.

![Bars on a logarithmic scale: Redrive beside its peers](commands.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, judgements))
    return f"{head}\n{body}\n\n{last_line(judgements).capitalize()}.\n"


def picture(results: Results) -> str:
    """The same as bars."""
    panels = []
    for database in ("postgres", "sqlite"):
        bars = [
            Bar(name.removesuffix(", batches of 100").removesuffix(", 10 at once"), median(taken), _role(name))
            for name, taken in _of(results.rates, database)
        ]
        panels.append(Panel(f"{NAMES[database]}: commands/s", "", sorted(bars, key=lambda bar: -bar.value), None))
    for database in ("postgres", "sqlite"):
        bars = [
            Bar(name.partition(",")[0], round(median(taken), 1), _role(name)) for name, taken in _of(results.latencies, database)
        ]
        limit = 10 if database == "postgres" else 50
        panels.append(Panel(f"{NAMES[database]}: ms to start", "ms", sorted(bars, key=lambda bar: bar.value), limit))
    note = f"Commands a second: longer is better; milliseconds from submit to start: shorter is; dashed: the target. {machine()}"
    return card("What durable commands cost: Redrive beside its peers", "What a worker does in a second", note, panels)


def _role(name: str) -> Hue:
    return "ours" if name.startswith(OURS) else "peer"
