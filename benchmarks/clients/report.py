"""Tables, page and picture of a run."""

from collections.abc import Sequence

from benchmarks.clients.part import Part
from benchmarks.plot import card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import HOW_TO_READ, Outcome, summary_line, table


def outcomes(parts: Sequence[Part]) -> list[Outcome]:
    return [each for part in parts for each in part.outcomes]


def tables(parts: Sequence[Part]) -> list[Table]:
    all_tables = [table(outcomes(parts)), *(each for part in parts for each in part.tables)]
    absent = {name: reason for part in parts for name, reason in part.absent.items()}
    if absent:
        all_tables.append(Table("Not measured", ("case", "reason"), list(absent.items())))
    return all_tables


def markdown(parts: Sequence[Part]) -> str:
    notes = "\n\n".join(note for part in parts for note in part.notes)
    head = f"""\
# Benchmark: clients

Written by `make bench-clients`: {machine()}.
{HOW_TO_READ}

{notes}

![Bars on a logarithmic scale: Redrive, bare libraries and other libraries](clients.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(parts))
    return f"{head}\n{body}\n\n{summary_line(outcomes(parts)).capitalize()}.\n"


def picture(parts: Sequence[Part]) -> str:
    panels = [panel for part in parts for panel in part.panels]
    note = f"Medians, logarithmic scale. Dashed line: target. {machine()}"
    return card("Clients: Redrive, bare libraries and other libraries", "Clients: overhead and throughput", note, panels)
