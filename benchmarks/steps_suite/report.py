"""Tables, page and picture of a run."""

from statistics import median

from benchmarks.candidate import release
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Hue, Panel, card
from benchmarks.report import machine
from benchmarks.steps_suite.results import DBOS, DBOS_DEFAULT, DEFAULT_THREADS, OURS, TEMPORAL, THREADS, Results
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, summary_line, table

PACKAGES = {DBOS: "dbos", DBOS_DEFAULT: "dbos", TEMPORAL: "temporalio"}


def describe_machine(results: Results) -> str:
    """Describe the machine and its disk."""
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    rows = []
    for name, samples in sorted(results.rates.items(), key=lambda rate: -median(rate[1])):
        figure = Interval.of(samples)
        rows.append(
            (_add_version(name), f"{figure.median:,.0f} ({figure.low:,.0f}–{figure.high:,.0f})", f"{1000 / figure.median:.2f}")
        )
    all_tables = [table(outcomes), Table("Jobs of ten steps, one worker", ("case", "jobs/s", "ms per job"), rows)]
    if results.absent:
        all_tables.append(Table("Not measured", ("case", "reason"), list(results.absent.items())))
    return all_tables


def _add_version(name: str) -> str:
    package = PACKAGES.get(name)
    return name if package is None else f"{name} ({release(package)})".removesuffix(" ()")


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: steps

Written by `make bench-steps`: {describe_machine(results)}.
A job has ten steps. Each step adds 1 to a number, and its result is stored before the next step starts. Postgres has `fsync`,
`synchronous_commit` and `full_page_writes` on, and SQLite has `synchronous=FULL`. There are {rounds} interleaved rounds. Each
measurement has its own process, its own database and one worker. Ratios are computed per round. {HOW_TO_READ}

| worker | settings, otherwise the defaults |
| --- | --- |
| redrive on Postgres | {THREADS} threads, sync command. The targets use this row |
| redrive on Postgres, default threads | {DEFAULT_THREADS} threads |
| redrive on Postgres, async | defaults: one event loop |
| redrive on Postgres, in_transaction | the steps are stored in the transaction of their job |
| DBOS | the same Postgres. {THREADS} threads. Sync workflows, started without a queue, because a queue polls |
| DBOS, default threads | no limit on threads. In each round, the target uses the faster DBOS setting |
| Temporal | its dev server. The default database is in memory, so it does not wait for a disk. Async activities, no sandbox |

![Bars on a logarithmic scale: Redrive and other libraries](steps.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def picture(results: Results) -> str:
    """Draw the results as bars."""
    bars = [Bar(name, median(samples), _hue(name)) for name, samples in results.rates.items()]
    panel = Panel("Jobs of ten steps: jobs/s", "", sorted(bars, key=lambda bar: -bar.value), None)
    note = f"Medians, logarithmic scale. Longer is better. {machine()}"
    return card("Steps: Redrive and other libraries", "Jobs of ten steps per second", note, [panel])


def _hue(name: str) -> Hue:
    return "ours" if name.startswith(OURS) else "peer"
