"""What batches promise, and the tables and the picture of a run."""

from statistics import median

from benchmarks.batch_suite.runner import NAMES, STORES, Results, at
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Outcome, Target, summary_line, table


def targets(results: Results) -> list[Outcome]:
    """B-12, and what the layer adds to a sender of ten thousand."""
    found: list[tuple[str, float, str, Interval | None]] = []
    for store in STORES:
        name = NAMES[store]
        for (_, many), added in ((key, value) for key, value in results.success.items() if key[0] == store):
            found.append((f"{name}: added to a call of {many:,} that succeeds", 5, " ms", Interval.of(added)))
        found.append((f"{name}: an increment, p99", 5, " ms", results.p99(store)))
        pair = results.one_pass.get(store)
        ratio = pair.ratio if pair else None
        more = None if ratio is None else Interval(*((each - 1) * 100 for each in (ratio.median, ratio.low, ratio.high)))
        found.append((f"{name}: {results.items:,} items, 1 % rejected, over the bare sender", 10, " %", more))
        shares = results.shares.get(store)
        found.append(
            (
                f"{name}: the same in four passes, waits left out",
                10,
                " %",
                Interval.of([each * 100 for each in shares]) if shares else None,
            )
        )
    return [Outcome(Target(what, "≤", limit, unit), figure) for what, limit, unit, figure in found]


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    counts = [
        (label, *(str(Interval.of([at(found, share) for found in results.increments[store]])) for share in (0.5, 0.9, 0.99)))
        for store, label in (("bare", "the bare UPDATE … RETURNING, psycopg"), *((s, f"redrive, {NAMES[s]}") for s in STORES))
        if store in results.increments
    ]
    sends = [
        (f"redrive, {NAMES[store]}", str(Interval.of(pair.base)), str(Interval.of(pair.own)), str(pair.ratio))
        for store, pair in results.one_pass.items()
    ]
    return [
        table(outcomes),
        Table("An increment, milliseconds", ("what", "p50", "p90", "p99"), counts),
        Table(f"{results.items:,} items in one pass, seconds", ("what", "bare sender", "with the layer", "ratio"), sends),
    ]


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# What a batch costs

Written by `make bench-batch`: {machine()}.
On a local Postgres with `fsync` and `synchronous_commit` on. The bare sender reads {results.items:,} pending rows of its own
table, sends them over HTTP to a provider in another process, a hundred a request, and marks what was taken with a commit for each
request; one in a hundred is refused. {rounds} rounds; in each the layer stands between two runs of the bare sender: the median
of the ratios, and in brackets the interval that holds the true median in 95 of 100 runs. In four passes the refused ones are sent
three times more; what is given is the time outside of the sender, to the time inside. An increment waits for the disk and for
whoever else is at the machine: the bare statement stands beside it. A target counts as missed only where the
whole interval misses it.

![Bars on a logarithmic scale: the bare sender and the layer](batch.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def picture(results: Results) -> str:
    """The same as bars."""
    sends = [
        Bar("bare sender", median([base for pair in results.one_pass.values() for base in pair.base]) * 1000, "floor"),
        *(Bar(f"with {NAMES[store]}", median(pair.own) * 1000, "ours") for store, pair in results.one_pass.items()),
    ]
    counts = [
        Bar(
            NAMES.get(store, "bare UPDATE, psycopg"),
            median([at(each, 0.5) for each in found]),
            "ours" if store in NAMES else "floor",
        )
        for store, found in results.increments.items()
    ]
    panels = [
        Panel(f"{results.items:,} items, 1 % rejected: ms", "", sends, round(sends[0].value * 1.1)),
        Panel("An increment, durable: ms", "", counts, 5),
    ]
    note = f"Medians, local Postgres, everything durable, logarithmic scale, shorter is better; dashed: the target. {machine()}"
    return card("What a batch costs: the layer beside the bare sender", "What a batch costs", note, panels)
