"""Targets, tables, page and picture of a run."""

from statistics import median

from benchmarks.batch_suite.runner import NAMES, STORES, Results, percentile
from benchmarks.interval import Interval
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, Target, summary_line, table


def targets(results: Results) -> list[Outcome]:
    """Check the targets of requirement B-12 and the overhead for 10,000 items."""
    figures: list[tuple[str, float, str, Interval | None]] = []
    for store in STORES:
        name = NAMES[store]
        for (_, count), added in ((key, value) for key, value in results.success.items() if key[0] == store):
            figures.append(
                (
                    f"{name}, overhead of a successful call with {count:,} item{'s' if count > 1 else ''}",
                    5,
                    " ms",
                    Interval.of(added),
                )
            )
        figures.append((f"{name}, increment, p99", 5, " ms", results.p99(store)))
        pair = results.one_pass.get(store)
        ratio = pair.ratio if pair else None
        percent = None if ratio is None else Interval(*((each - 1) * 100 for each in (ratio.median, ratio.low, ratio.high)))
        figures.append((f"{name}, overhead for {results.items:,} items, 1 % rejected", 10, " %", percent))
        shares = results.shares.get(store)
        figures.append(
            (
                f"{name}, overhead for four passes without waits",
                10,
                " %",
                Interval.of([each * 100 for each in shares]) if shares else None,
            )
        )
    return [Outcome(Target(what, "≤", limit, unit), figure) for what, limit, unit, figure in figures]


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    counts = [
        (
            label,
            *(
                str(Interval.of([percentile(samples, share) for samples in results.increments[store]]))
                for share in (0.5, 0.9, 0.99)
            ),
        )
        for store, label in (("bare", "UPDATE … RETURNING, psycopg"), *((s, f"redrive, {NAMES[s]}") for s in STORES))
        if store in results.increments
    ]
    sends = [
        (f"redrive, {NAMES[store]}", str(Interval.of(pair.base)), str(Interval.of(pair.own)), str(pair.ratio))
        for store, pair in results.one_pass.items()
    ]
    return [
        table(outcomes),
        Table("Increment, ms", ("case", "p50", "p90", "p99"), counts),
        Table(f"{results.items:,} items in one pass, seconds", ("case", "bare sender", "with the layer", "ratio"), sends),
    ]


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: batches

Written by `make bench-batch`: {machine()}.
Postgres runs on this machine, with `fsync` and `synchronous_commit` on. The bare sender reads {results.items:,} pending rows of
its table and sends them over HTTP to a provider in another process. A request has 100 items, of which the provider rejects one.
The sender marks the accepted items with one commit per request. There are {rounds} rounds. In each round, the layer runs between
two runs of the bare sender, and the ratio is to the mean of both. With four passes, the rejected items are sent three more times,
and the overhead is the time outside the sender relative to the time inside. An increment waits for the disk, so it is compared
with the same statement in psycopg. {HOW_TO_READ}

![Bars on a logarithmic scale: the bare sender and the layer](batch.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def picture(results: Results) -> str:
    """Draw the results as bars."""
    sends = [
        Bar("bare sender", median([base for pair in results.one_pass.values() for base in pair.base]) * 1000, "floor"),
        *(Bar(f"with {NAMES[store]}", median(pair.own) * 1000, "ours") for store, pair in results.one_pass.items()),
    ]
    counts = [
        Bar(
            NAMES.get(store, "bare UPDATE, psycopg"),
            median([percentile(samples, 0.5) for samples in rounds]),
            "ours" if store in NAMES else "floor",
        )
        for store, rounds in results.increments.items()
    ]
    panels = [
        Panel(f"{results.items:,} items, 1 % rejected: ms", "", sends, round(sends[0].value * 1.1)),
        Panel("Increment, durable: ms", "", counts, 5),
    ]
    note = f"Medians, local Postgres, all durable, logarithmic scale. Shorter is better. Dashed line: target. {machine()}"
    return card("Batches: the layer and the bare sender", "Overhead of batches", note, panels)
