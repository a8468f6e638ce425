"""What the console promises, and the tables and the picture of a run."""

from collections.abc import Callable
from statistics import median

from benchmarks.consoled.course import DATABASES, Page, Results
from benchmarks.durable.targets import NAMES
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Judgement, Target, last_line, table

RATIO, SERVER, BYTES, QUERIES = 2, 50, 150, 10
"""Times, milliseconds, kilobytes, statements."""
UNSEEN = 5.0
"""Milliseconds that nobody notices: a page that takes less may take twice as much."""


def ratio(page: Page) -> Interval:
    """Of the large to the small one."""
    return Interval.of([large / max(small, UNSEEN) for small, large in zip(page.small, page.large, strict=True)])


def targets(results: Results) -> list[Judgement]:
    """For each database the page that is worst."""
    found: list[Judgement] = []
    for database in DATABASES:
        pages = {name: page for (where, name), page in results.pages.items() if where == database}
        asked: tuple[tuple[str, Callable[[Page], Interval], float, str], ...] = (
            (f"server time at {results.large:,}, to 1,000", ratio, RATIO, "×"),
            (f"server time at {results.large:,}, p95", lambda page: Interval.of(page.large), SERVER, " ms"),
            ("size of a page", lambda page: Interval.exactly(page.size / 1000), BYTES, " KB"),
            ("queries of a page", lambda page: Interval.exactly(page.queries), QUERIES, ""),
        )
        for what, read, limit, unit in asked:
            worst = max(pages, key=lambda name: read(pages[name]).median, default=None)
            figure = None if worst is None else read(pages[worst])
            found.append(Judgement(Target(f"{NAMES[database]}: {what}, the most: {worst}", "≤", limit, unit), figure))
    return found


def tables(results: Results, judgements: list[Judgement]) -> list[Table]:
    made = [table(judgements)]
    for database in DATABASES:
        each = [
            (
                name, str(Interval.of(page.small)), str(Interval.of(page.large)), str(ratio(page)), f"{page.size / 1000:.1f}",
                str(page.queries),
            )
            for (where, name), page in results.pages.items()
            if where == database
        ]  # fmt: skip
        columns = ("what", "ms at 1,000, p95", f"ms at {results.large:,}, p95", "ratio", "KB", "queries")
        made.append(Table(f"Pages on {NAMES[database]}", columns, each))
    return made


def markdown(results: Results, judgements: list[Judgement], rounds: int) -> str:
    head = f"""\
# What a page of the console costs

Written by `make bench-console`: {machine()}.
Every page beside a ledger of 1,000 jobs and 1,000 dead letters, and beside one of {results.large:,} of each, in turn, {rounds}
rounds of 20; 20 kinds, 200 groups of failures, three days. Server time: from the request to the last byte of the page, as an
ASGI server has it: on one event loop, without a client's own work; Postgres on the same machine. Of each round the 95th of a
hundred; of the rounds the median, and in brackets the interval that holds the true median in 95 of 100 runs. In a ratio less
than {UNSEEN:.0f} ms counts as {UNSEEN:.0f}. A target counts as missed only where the whole interval misses it.

![Bars on a logarithmic scale: pages beside a small ledger and a large one](console.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, judgements))
    return f"{head}\n{body}\n\n{last_line(judgements).capitalize()}.\n"


def picture(results: Results) -> str:
    """The slowest ones as bars."""
    panels = []
    for database in DATABASES:
        pages = {name: page for (where, name), page in results.pages.items() if where == database}
        slowest = sorted(pages, key=lambda name: -median(pages[name].large))[:6]
        bars = []
        for name in slowest:
            bars.append(Bar(f"{name}, 1,000", median(pages[name].small), "floor"))
            bars.append(Bar(f"{name}, {results.large:,}", median(pages[name].large), "ours"))
        panels.append(Panel(f"The slowest pages on {NAMES[database]}: ms, p95", "", bars, SERVER))
    note = f"Logarithmic scale, shorter is better; dashed: the target. {machine()}"
    return card("What a page of the console costs: beside a small ledger and a large one", "What a page costs", note, panels)
