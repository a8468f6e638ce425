"""The tables and the picture of a run, of all its parts."""

from collections.abc import Sequence

from benchmarks.clients.half import Half, Target
from benchmarks.plot import card
from benchmarks.report import machine
from benchmarks.table import Table

NONE = "–"


def targets(halves: Sequence[Half]) -> list[Target]:
    return [target for half in halves for target in half.targets]


def tables(halves: Sequence[Half]) -> list[Table]:
    rows = []
    for target in targets(halves):
        figure = f"{target.figure}{target.unit}" if target.figure else NONE
        rows.append((target.what, target.text, figure, target.verdict))
    found = [Table("Targets", ("what", "target", "redrive", "verdict"), rows)]
    found += [table for half in halves for table in half.tables]
    absent = {name: why for half in halves for name, why in half.absent.items()}
    if absent:
        found.append(Table("Not measured", ("what", "why"), list(absent.items())))
    return found


def last_line(halves: Sequence[Half]) -> str:
    found = targets(halves)
    missed = [f"{target.what} ({target.verdict.lower()})" for target in found if target.missed]
    if missed:
        return f"{len(missed)} of {len(found)} targets missed: " + "; ".join(missed)
    return f"all {len(found)} targets met"


def markdown(halves: Sequence[Half]) -> str:
    notes = "\n\n".join(note for half in halves for note in half.notes)
    head = f"""\
# What clients cost

Written by `make bench-clients`: {machine()}. A figure is a median, and in brackets stands the interval that holds the true
median in 95 of 100 runs. A target counts as missed only where the whole interval misses it.

{notes}

![Bars on a logarithmic scale: Redrive's clients beside bare libraries and its peers](clients.svg)
"""
    body = "\n\n".join(table.markdown() for table in tables(halves))
    return f"{head}\n{body}\n\n{last_line(halves).capitalize()}.\n"


def picture(halves: Sequence[Half]) -> str:
    panels = [panel for half in halves for panel in half.panels]
    note = f"Medians, logarithmic scale; dashed: the target. {machine()}"
    return card("What clients cost: Redrive beside bare libraries and its peers", "What clients cost", note, panels)
