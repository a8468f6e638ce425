"""Tables, page and picture of a run."""

from statistics import median

from benchmarks.candidate import release
from benchmarks.commands_suite.results import OURS, Case, Results
from benchmarks.interval import Interval
from benchmarks.ledger_suite.targets import NAMES
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, summary_line, table


def describe_machine(results: Results) -> str:
    """Describe the machine and its disk."""
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    all_tables = [table(outcomes)]
    for database in ("postgres", "sqlite"):
        all_tables.append(_rates(results.rates, database, "empty commands"))
        if _select(results.of_20_ms, database):
            all_tables.append(_rates(results.of_20_ms, database, "commands of 20 ms"))
        all_tables.append(_latencies(results, database))
    if results.absent:
        all_tables.append(Table("Not measured", ("case", "reason"), list(results.absent.items())))
    return all_tables


def _select(figures: dict[Case, list[float]], database: str) -> list[tuple[str, list[float]]]:
    return [(case.name, samples) for case, samples in figures.items() if case.database == database and samples]


def _rates(figures: dict[Case, list[float]], database: str, commands: str) -> Table:
    rows = []
    for name, samples in sorted(_select(figures, database), key=lambda case: -median(case[1])):
        rate = Interval.of(samples)
        rows.append((_add_version(name), f"{rate.median:,.0f} ({rate.low:,.0f}–{rate.high:,.0f})"))
    return Table(f"{NAMES[database]}, {commands}, whole worker", ("case", "commands/s"), rows)


def _latencies(results: Results, database: str) -> Table:
    rows = [
        (_add_version(name), str(Interval.of(samples)))
        for name, samples in sorted(_select(results.latencies, database), key=lambda case: median(case[1]))
    ]
    return Table(f"{NAMES[database]}, from submit to start on an idle worker", ("case", "p50, ms"), rows)


def _add_version(name: str) -> str:
    library = name.partition(",")[0].partition(" ")[0]
    return name if library == OURS else f"{name} ({release(library.lower())})".removesuffix(" ()")


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: commands

Written by `make bench-commands`: {describe_machine(results)}.
Everything is durable. Postgres has `fsync`, `synchronous_commit` and `full_page_writes` on. SQLite uses WAL with
`synchronous=FULL`. There are {rounds} interleaved rounds. Each measurement has its own process, its own database and one worker.
Most commands are empty, so the figures show the overhead per command. The commands of 20 ms sleep for that time, so their
figures show the limit of the threads and the event loop of one worker. Ratios are computed per round. {HOW_TO_READ}

| worker | settings, otherwise the defaults |
| --- | --- |
| redrive | defaults: 8 threads for sync commands, one event loop for async commands |
| pgqueuer | `batch_size=100` for commands/s (default: 10), `batch_size=10` for the time to start, async functions |
| procrastinate | `concurrency=10` (default: 1), no LISTEN for commands/s, defaults for the time to start, async functions |
| DBOS | queue with `polling_interval_sec=0.05` (default: 1), sync workflows |
| huey | `fsync=True`, `results=False`, 1 thread (the default), sync functions |

All commands are queued when the clock starts. Only DBOS enqueues them while it runs, because its workers have started
already. huey deletes a task when it starts it. The others store the outcome.

![Bars on a logarithmic scale: Redrive and other libraries](commands.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def picture(results: Results) -> str:
    """Draw the results as bars."""
    panels = []
    for database in ("postgres", "sqlite"):
        bars = [
            Bar(name.removesuffix(", batches of 100").removesuffix(", 10 at once"), median(samples), _hue(name))
            for name, samples in _select(results.rates, database)
        ]
        panels.append(Panel(f"{NAMES[database]}: commands/s", "", sorted(bars, key=lambda bar: -bar.value), None))
    for database in ("postgres", "sqlite"):
        bars = [
            Bar(name.partition(",")[0], round(median(samples), 1), _hue(name))
            for name, samples in _select(results.latencies, database)
        ]
        limit = 10 if database == "postgres" else 50
        panels.append(Panel(f"{NAMES[database]}: ms to start", "ms", sorted(bars, key=lambda bar: bar.value), limit))
    note = f"Medians. Commands/s: longer is better. Milliseconds: shorter is better. Dashed line: target. {machine()}"
    return card("Commands: Redrive and other libraries", "Commands per second, and time to start", note, panels)


def _hue(name: str) -> Hue:
    return "ours" if name.startswith(OURS) else "peer"
