"""The tables and the picture of a run."""

from statistics import median

from benchmarks.candidate import release
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.stepped.results import DBOS, DBOS_DEFAULT, DEFAULT_THREADS, OURS, TEMPORAL, THREADS, Results
from benchmarks.table import Table
from benchmarks.target import Judgement, last_line, table

PACKAGES = {DBOS: "dbos", DBOS_DEFAULT: "dbos", TEMPORAL: "temporalio"}


def place(results: Results) -> str:
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, judgements: list[Judgement]) -> list[Table]:
    rows = []
    for name, taken in sorted(results.rates.items(), key=lambda rate: -median(rate[1])):
        figure = Interval.of(taken)
        rows.append((_named(name), f"{figure.median:,.0f} ({figure.low:,.0f}–{figure.high:,.0f})", f"{1000 / figure.median:.2f}"))
    found = [table(judgements), Table("Jobs of ten steps, one worker", ("what", "jobs/s", "ms for a job"), rows)]
    if results.absent:
        found.append(Table("Not measured", ("what", "why"), list(results.absent.items())))
    return found


def _named(name: str) -> str:
    package = PACKAGES.get(name)
    return name if package is None else f"{name} ({release(package)})".removesuffix(" ()")


def markdown(results: Results, judgements: list[Judgement], rounds: int) -> str:
    head = f"""\
# What the steps of a job cost

Written by `make bench-steps`: {place(results)}.
A job has ten steps. Each step adds 1 to a number, and its result is stored before the next step starts. Postgres has `fsync`,
`synchronous_commit` and `full_page_writes` on, and SQLite has `synchronous=FULL`. There are {rounds} interleaved rounds. Each
measurement has its own process, its own database and one worker. Figures are medians. The brackets have the interval that
contains the true median in 95 of 100 runs. Ratios are taken round by round. A target is missed only if the whole interval
misses it.

| worker | settings, otherwise the defaults |
| --- | --- |
| redrive on Postgres | {THREADS} threads, sync command. The ratios are those of this row |
| redrive on Postgres, default threads | {DEFAULT_THREADS} threads |
| redrive on Postgres, async | defaults: one event loop |
| redrive on Postgres, in_transaction | the steps are stored in the transaction of their job |
| DBOS | the same Postgres. {THREADS} threads. Sync workflows, started directly, because a queue polls |
| DBOS, default threads | as many threads as it likes. The ratio is to the faster one of both, in each round |
| Temporal | its dev server with its default, a database in memory: it waits for no disk. Async activities, no sandbox |

![Bars on a logarithmic scale: Redrive beside its peers](steps.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, judgements))
    return f"{head}\n{body}\n\n{last_line(judgements).capitalize()}.\n"


def picture(results: Results) -> str:
    """The same as bars."""
    bars = [Bar(name, median(taken), _role(name)) for name, taken in results.rates.items()]
    panel = Panel("Jobs of ten steps/s", "", sorted(bars, key=lambda bar: -bar.value), None)
    note = f"Jobs a second: longer is better. {machine()}"
    return card("What the steps of a job cost: Redrive beside its peers", "What a worker does in a second", note, [panel])


def _role(name: str) -> Hue:
    return "ours" if name.startswith(OURS) else "peer"
