"""Targets, tables, page and picture of a run."""

from benchmarks.interval import Interval, number
from benchmarks.ledger_suite.targets import NAMES
from benchmarks.partitions_suite.faults import Tally
from benchmarks.partitions_suite.measure import Samples
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, Target, summary_line, table

Figures = dict[tuple[str, int], Samples]
"""Samples by database and number of partitions."""
LIMITS: tuple[tuple[str, str, str, float, str], ...] = (
    ("verdicts", "verdicts in batches", "sqlite", 1000, "/s"),
    ("verdicts", "verdicts in batches", "postgres", 1500, "/s"),
    ("calendar", "calendar of a year", "", 50, " ms"),
    ("counts", "counts", "", 50, " ms"),
    ("reprocessing plan", "plan to reprocess all partitions", "", 3000, " ms"),
    ("backfill plan", "plan of a backfill of 1,000,000 partitions", "", 3000, " ms"),
    ("cancel", "cancel of a backfill of 1,000,000 partitions", "", 100, " ms"),
    ("idle claim", "idle claim", "", 2, " ms"),
    ("idle maintenance", "idle maintenance", "", 2, " ms"),
    ("memory", "memory of the plan to reprocess all partitions", "", 200, " MB"),
)


def check(all_figures: Figures, small: int, big: int) -> list[Outcome]:
    """Check the targets for each database."""
    outcomes: list[Outcome] = []
    for database in sorted({database for database, _ in all_figures}):
        ours, base = all_figures[database, big], all_figures[database, small]
        claim, before = ours.get("claim"), base.get("claim")
        ratio = None
        if claim and before:
            ratio = Interval(claim.median / before.median, claim.low / before.high, claim.high / before.low)
        outcomes.append(Outcome(Target(f"{NAMES[database]}, claim of 100 among {big:,} vs {small:,}", "≤", 2, "×"), ratio))
        for name, what, only, limit, unit in LIMITS:
            if only in ("", database):
                target = Target(f"{NAMES[database]}, {what}", "≥" if unit == "/s" else "≤", limit, unit)
                outcomes.append(Outcome(target, ours.get(name)))
    return outcomes


def tables(all_figures: Figures, outcomes: list[Outcome], tallies: dict[str, Tally]) -> list[Table]:
    """Build the tables."""
    all_tables = [table(outcomes)]
    for (database, count), samples in sorted(all_figures.items()):
        rows = [(name, str(samples.get(name))) for name in samples.values]
        all_tables.append(Table(f"{NAMES[database]}, {count:,} partitions", ("case", "ms, verdicts/s or MB"), rows))
    if tallies:
        all_tables.append(
            Table(
                "The same faults for all",
                (
                    "case",
                    "verdicts",
                    "miscounted",
                    "minutes of good data unreadable",
                    "double runs",
                    "newer data replaced by older",
                ),
                [
                    (name, *(number(value) for value in (t.verdicts, t.miscounted, t.unreadable, t.doubled, t.overtaken)))
                    for name, t in tallies.items()
                ],
                "Two control planes and two validators run concurrently. One extraction in three fails, one worker in twenty "
                "pauses for longer than its lease, and one verdict in ten is a duplicate. *Miscounted* are attempts that were "
                "lost or counted twice. Each partition is extracted and later reprocessed once. Minutes are summed over the "
                "partitions. *One status column* has the status and the attempt count in one row without locks, so a rerun hides "
                "the old data. *Clear and rerun* has in addition a row lock and one run at a time.",
            )
        )
    return all_tables


def markdown(all_tables: list[Table], outcomes: list[Outcome]) -> str:
    """Build the page."""
    body = "\n\n".join(each.markdown() for each in all_tables)
    image = "![Bars on a logarithmic scale: milliseconds with few and with many partitions](partitions.svg)"
    head = f"Written by `make bench-partitions`: {machine()}.\n{HOW_TO_READ} {summary_line(outcomes).capitalize()}."
    return f"# Benchmark: partitions\n\n{head}\n\n{image}\n\n{body}\n"


DRAWN = ("claim", "calendar", "counts", "year of one customer", "page of failures", "start a backfill", "cancel", "idle claim")


def picture(all_figures: Figures) -> str:
    """Draw the figures that must not depend on the number of partitions, with few and with many partitions."""
    most = max((count for _, count in all_figures), default=0)
    panels = []
    for database in sorted({database for database, _ in all_figures}):
        bars = [
            Bar(f"{name}, {count:,}" if count < most else name, figure.median, "ours" if count == most else "floor")
            for name in DRAWN
            for (place, count), samples in sorted(all_figures.items())
            if place == database and (figure := samples.get(name)) is not None
        ]
        panels.append(Panel(f"{NAMES[database]}: ms", "", bars))
    note = f"Blue: {most:,} partitions. Logarithmic scale. Shorter is better. {machine()}"
    return card("Partitions: few and many", "Operations on partitions", note, panels)
