"""Targets, tables, page and picture of a run."""

from collections.abc import Callable
from statistics import median

from benchmarks.console_suite.runner import DATABASES, Page, Results
from benchmarks.interval import Interval
from benchmarks.ledger_suite.targets import NAMES
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, Target, summary_line, table

RATIO, SERVER, BYTES, QUERIES = 2, 25, 150, 10
"""Maximum ratio, milliseconds, kilobytes and SQL statements."""
MIN_BASE_MS = 5.0
"""Lower limit of the base of a ratio in milliseconds. Below it, users do not notice a difference."""


def ratio(page: Page) -> Interval:
    """Ratio of the large ledger to the small one."""
    return Interval.of([large / max(small, MIN_BASE_MS) for small, large in zip(page.small, page.large, strict=True)])


def targets(results: Results) -> list[Outcome]:
    """Check the worst page on each database."""
    outcomes: list[Outcome] = []
    for database in DATABASES:
        pages = {name: page for (where, name), page in results.pages.items() if where == database}
        limits: tuple[tuple[str, Callable[[Page], Interval], float, str], ...] = (
            (f"server time at {results.large:,} vs 1,000", ratio, RATIO, "×"),
            (f"server time at {results.large:,}, p95", lambda page: Interval.of(page.large), SERVER, " ms"),
            ("page size", lambda page: Interval.exactly(page.size / 1000), BYTES, " KB"),
            ("queries per page", lambda page: Interval.exactly(page.queries), QUERIES, ""),
        )
        for what, read, limit, unit in limits:
            worst = max(pages, key=lambda name: read(pages[name]).median, default=None)
            figure = None if worst is None else read(pages[worst])
            outcomes.append(Outcome(Target(f"{NAMES[database]}, {what}, worst page ({worst})", "≤", limit, unit), figure))
    return outcomes


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    all_tables = [table(outcomes)]
    for database in DATABASES:
        rows = [
            (
                name, str(Interval.of(page.small)), str(Interval.of(page.large)), str(ratio(page)), f"{page.size / 1000:.1f}",
                str(page.queries),
            )
            for (where, name), page in results.pages.items()
            if where == database
        ]  # fmt: skip
        columns = ("page", "ms at 1,000, p95", f"ms at {results.large:,}, p95", "ratio", "KB", "queries")
        all_tables.append(Table(f"Pages on {NAMES[database]}", columns, rows))
    return all_tables


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: console

Written by `make bench-console`: {machine()}.
Each page is requested with a ledger of 1,000 jobs and 1,000 dead letters, and with a ledger of {results.large:,} each. There are
{rounds} rounds of 20 alternating requests. The ledgers have 20 job types, 200 failure groups and jobs of three days. The
small one has activity of one day, and the large one of 90 days: a chart of 7 days has 12 points in one, and 84 in the other.
Server time is the time from the request to the last byte in an ASGI application on one event loop, without an HTTP client.
Postgres runs on the same machine. The figure of a round is its 95th percentile. {HOW_TO_READ} In a ratio, a base below
{MIN_BASE_MS:.0f} ms counts as {MIN_BASE_MS:.0f} ms.

![Bars on a logarithmic scale: pages with a small and a large ledger](console.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def picture(results: Results) -> str:
    """Draw the slowest pages as bars."""
    panels = []
    for database in DATABASES:
        pages = {name: page for (where, name), page in results.pages.items() if where == database}
        slowest = sorted(pages, key=lambda name: -median(pages[name].large))[:6]
        bars = []
        for name in slowest:
            bars.append(Bar(f"{name}, 1,000", median(pages[name].small), "floor"))
            bars.append(Bar(f"{name}, {results.large:,}", median(pages[name].large), "ours"))
        panels.append(Panel(f"Slowest pages on {NAMES[database]}: ms, p95", "", bars, SERVER))
    note = f"Logarithmic scale. Shorter is better. Dashed line: target. {machine()}"
    return card("Console pages with a small and a large ledger", "Console pages: server time", note, panels)
