"""Tables, page and picture of a run."""

from collections.abc import Iterable
from statistics import median

from benchmarks.interval import number
from benchmarks.plot import Bar, Panel, card
from benchmarks.report import machine
from benchmarks.scale_suite.results import (
    DATABASES,
    EMPTY_COMMANDS,
    MAX_EXPONENT,
    PAYLOADS,
    ROWS,
    TENANTS,
    TYPES,
    WORKERS,
    Curve,
    Name,
    Results,
)
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, summary_line, table

TITLES = {
    ROWS: ("Rows", "ms with {} rows"),
    TYPES: ("Job types", "ms with {} types"),
    TENANTS: ("Tenants", "ms with {} tenants"),
    PAYLOADS: ("Payloads", "ms with {} bytes"),
}


def describe_machine(results: Results) -> str:
    """Describe the machine and its disk."""
    return machine() + (f", an fsync takes {results.fsync} ms" if results.fsync else "")


def tables(results: Results, outcomes: list[Outcome]) -> list[Table]:
    all_tables = [table(outcomes)]
    for part, (title, column) in TITLES.items():
        curves = {name: curve for name, curve in results.curves.items() if name.part == part}
        sizes = sorted({size for curve in curves.values() for size in curve.points})
        if not sizes:
            continue
        rows = []
        for name, curve in curves.items():
            medians = curve.medians()
            cells = [number(medians[size]) if size in medians else "" for size in sizes]
            rows.append((f"{name.database}, {name.operation}", *cells, _exponent(curve)))
        memory = [
            f"{_size(size)}: {median(figures):,.0f}"
            for (of, database, size), figures in results.memory.items()
            if (of, database) == (part, DATABASES[0])
        ]
        note = f"MiB of the process after Postgres with payloads of {', '.join(memory)}." if memory else ""
        columns = ("case", *(column.format(f"{size:,}") for size in sizes), "exponent")
        all_tables.append(Table(title, columns, rows, note))
    fleet = results.curves.get(Name(WORKERS, "Postgres", EMPTY_COMMANDS))
    if fleet is not None:
        rows = [
            (
                f"{processes}",
                f"{rate:,.0f}",
                f"{median(results.memory[WORKERS, 'Postgres', processes]):,.0f}",
                f"{median(results.connections[WORKERS, 'Postgres', processes]):.0f}",
            )
            for processes, rate in fleet.medians().items()
        ]
        columns = ("worker processes", "commands/s", "MiB of one worker", "connections")
        all_tables.append(Table("Workers on one Postgres", columns, rows, f"Exponent: {_exponent(fleet)}."))
    return all_tables


def _exponent(curve: Curve) -> str:
    exponent = curve.exponent
    return "" if exponent is None else f"{exponent.median:.2f} ({exponent.low:.2f}–{exponent.high:.2f})"


def markdown(results: Results, outcomes: list[Outcome], rounds: int) -> str:
    head = f"""\
# Benchmark: scale

Written by `make bench-scale`: {describe_machine(results)}.
Each operation is measured with ledgers of several sizes, in {rounds} interleaved rounds. The exponent says how the figure grows:
with an exponent of 1 it doubles with the size, and with 0 it does not grow. At {MAX_EXPONENT}, a hundred times as many rows cost
26 % more. It is computed by least squares for each round. Postgres has `fsync` and `synchronous_commit` on, and SQLite has
`synchronous=FULL`. All processes, and Postgres, share this machine. {HOW_TO_READ}

A ledger of n rows has n jobs in all states, n more dead jobs with their dead letters and attempts, n events and n partitions.
The ledgers with job types have 500 due jobs in a round. The ledgers with tenants have a million due jobs. A job with a payload is
submitted, claimed and settled by itself. The workers run empty async commands. Their rate
counts from the time when each worker has finished a job.

![Bars on a logarithmic scale: each operation with the largest ledger, beside the smallest](scale.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(results, outcomes))
    return f"{head}\n{body}\n\n{summary_line(outcomes).capitalize()}.\n"


def picture(results: Results) -> str:
    """Draw the smallest and the largest size of each operation as bars."""
    note = f"Medians, logarithmic scale. {machine()}"
    return card("Scale: cost of an operation by size", "How the cost of an operation grows", note, _panels(results))


def _panels(results: Results) -> Iterable[Panel]:
    for part, (title, _) in TITLES.items():
        for database in DATABASES:
            bars = []
            for name, curve in results.curves.items():
                if (name.part, name.database) != (part, database):
                    continue
                medians = curve.medians()
                for size, hue in ((min(medians), "floor"), (max(medians), "ours")):
                    bars.append(Bar(f"{_short(name.operation)}, {_size(size)}", medians[size], hue))  # type: ignore[arg-type]
            yield Panel(f"{title}, {database}: ms", "", bars)
    fleet = results.curves.get(Name(WORKERS, "Postgres", EMPTY_COMMANDS))
    if fleet is not None:
        bars = [Bar(f"{processes} processes", rate, "ours") for processes, rate in fleet.medians().items()]
        yield Panel("Workers on one Postgres: commands/s", "", bars)


def _short(operation: str) -> str:
    return operation.replace("claim 100 jobs and settle 100", "claim and settle 100").replace("submit, claim and settle", "whole")


def _size(size: int) -> str:
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit:
            return f"{size // unit}{letter}"
    return str(size)
