"""Half: what one part of the run found. A part is a module of this folder with `half(quick, show) -> Half`; see `__main__`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.plot import Panel
from benchmarks.table import Table
from benchmarks.target import Outcome

Show = Callable[[str], None]
"""Says how far it has come."""


@dataclass
class Half:
    """Judgements, tables and bars of one part."""

    outcomes: list[Outcome] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """How it was measured, a paragraph each."""
    absent: dict[str, str] = field(default_factory=dict)
