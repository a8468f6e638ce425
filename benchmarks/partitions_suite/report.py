"""Tables of what was found."""

from benchmarks.interval import Interval, number
from benchmarks.partitions_suite.faults import Tally
from benchmarks.partitions_suite.measure import Figures
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Outcome, Target, summary_line, table

Found = dict[tuple[str, int], Figures]
LIMITS: tuple[tuple[str, str, str, float, str], ...] = (
    ("verdicts", "verdicts in batches, SQLite with FULL", "sqlite", 1000, "/s"),
    ("verdicts", "verdicts in batches, Postgres", "postgres", 1500, "/s"),
    ("calendar", "calendar of a year", "", 50, " ms"),
    ("counts", "counts", "", 50, " ms"),
    ("plan", "plan of a reprocessing of all", "", 3000, " ms"),
    ("plan of a range", "plan of a range of a million", "", 3000, " ms"),
    ("cancel", "cancel of a million keys", "", 100, " ms"),
    ("idle", "idle tick", "", 2, " ms"),
    ("idle round", "idle round of the control plane", "", 2, " ms"),
    ("memory", "memory of a plan of all", "", 200, " MB"),
)


def judged(found: Found, small: int, big: int) -> list[Outcome]:
    """Whether the run bears out what is promised, for each database."""
    said: list[Outcome] = []
    for database in sorted({database for database, _ in found}):
        ours, base = found[database, big], found[database, small]
        claim, before = ours.get("claim"), base.get("claim")
        ratio = None
        if claim and before:
            ratio = Interval(claim.median / before.median, claim.low / before.high, claim.high / before.low)
        said.append(Outcome(Target(f"{database}: claim of 100 among {big:,}, to {small:,}", "≤", 2, "×"), ratio))
        for name, what, only, limit, unit in LIMITS:
            if only in ("", database):
                target = Target(f"{database}: {what}", "≥" if unit == "/s" else "≤", limit, unit)
                said.append(Outcome(target, ours.get(name)))
    return said


def tables(found: Found, outcomes: list[Outcome], tallies: dict[str, Tally]) -> list[Table]:
    """What is shown."""
    made = [table(outcomes)]
    for (database, many), figures in sorted(found.items()):
        of = [(name, str(figures.get(name))) for name in figures.samples]
        made.append(Table(f"{database}, {many:,} partitions", ("what", "ms, or verdicts/s, or MB"), of))
    if tallies:
        made.append(
            Table(
                "The same seeded faults",
                (
                    "what",
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
                "Two control planes and two validators at once; one extraction in three fails, one worker in twenty falls asleep "
                "for longer than its lease, one verdict in ten is said twice. Miscounted: attempts lost, or counted twice. "
                "Each partition is extracted and later reprocessed once. Minutes are summed over the partitions. "
                "One status column: status and attempt count of a partition in one row without locks, so a rerun hides "
                "the old data. Clear and rerun: the same with a row lock and one run at a time.",
            )
        )
    return made


def markdown(shown: list[Table], outcomes: list[Outcome]) -> str:
    """As it is kept beside the code."""
    body = "\n\n".join(each.markdown() for each in shown)
    image = "![Bars on a logarithmic scale: milliseconds beside few partitions and beside many](partitions.svg)"
    said = f"Written by `make bench-partitions`: {machine()}. {summary_line(outcomes)}."
    return f"# What partitions cost\n\n{said}\n\n{image}\n\n{body}\n"


DRAWN = ("claim", "calendar", "counts", "year of one customer", "a page of failures", "begin a backfill", "cancel", "idle")


def picture(found: Found) -> str:
    """What does not grow with how many there are: each figure twice, beside few and beside many."""
    most = max((many for _, many in found), default=0)
    panels = []
    for database in sorted({database for database, _ in found}):
        bars = [
            Bar(f"{name}, {many:,}" if many < most else name, figure.median, "ours" if many == most else "floor")
            for name in DRAWN
            for (of, many), figures in sorted(found.items())
            if of == database and (figure := figures.get(name)) is not None
        ]
        panels.append(Panel({"sqlite": "SQLite: ms", "postgres": "Postgres: ms"}[database], "", bars))
    note = f"Blue: beside {most:,} partitions. Logarithmic scale, shorter is better. {machine()}"
    return card("What partitions cost, beside few and beside many", "What partitions cost", note, panels)
