"""Results of one part of the run. A part is a module of this folder with `measure(quick, progress) -> Part`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.plot import Panel
from benchmarks.table import Table
from benchmarks.target import Outcome

Progress = Callable[[str], None]
"""Shows the progress of a run."""


@dataclass
class Part:
    """Targets, tables and bars of one part."""

    outcomes: list[Outcome] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Paragraphs that describe the measurement."""
    absent: dict[str, str] = field(default_factory=dict)
