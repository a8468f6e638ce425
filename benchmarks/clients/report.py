"""The tables and the picture of a run, of all its parts."""

from collections.abc import Sequence

from benchmarks.clients.half import Half
from benchmarks.plot import card
from benchmarks.report import machine
from benchmarks.table import Table
from benchmarks.target import Outcome, summary_line, table


def outcomes(halves: Sequence[Half]) -> list[Outcome]:
    return [each for half in halves for each in half.outcomes]


def tables(halves: Sequence[Half]) -> list[Table]:
    found = [table(outcomes(halves)), *(each for half in halves for each in half.tables)]
    absent = {name: why for half in halves for name, why in half.absent.items()}
    if absent:
        found.append(Table("Not measured", ("what", "why"), list(absent.items())))
    return found


def markdown(halves: Sequence[Half]) -> str:
    notes = "\n\n".join(note for half in halves for note in half.notes)
    head = f"""\
# What clients cost

Written by `make bench-clients`: {machine()}. A figure is a median, and in brackets stands the interval that holds the true
median in 95 of 100 runs. A target counts as missed only where the whole interval misses it.

{notes}

![Bars on a logarithmic scale: Redrive's clients beside bare libraries and its peers](clients.svg)
"""
    body = "\n\n".join(each.markdown() for each in tables(halves))
    return f"{head}\n{body}\n\n{summary_line(outcomes(halves)).capitalize()}.\n"


def picture(halves: Sequence[Half]) -> str:
    panels = [panel for half in halves for panel in half.panels]
    note = f"Medians, logarithmic scale; dashed: the target. {machine()}"
    return card("What clients cost: Redrive beside bare libraries and its peers", "What clients cost", note, panels)
