"""Half: what one part of the run found. A part is a module of this folder with `half(quick, show) -> Half`; see `__main__`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.durable.targets import Side, verdict
from benchmarks.interval import Interval, number
from benchmarks.plot import Panel
from benchmarks.table import Table
from benchmarks.targets import Verdict

Show = Callable[[str], None]
"""Says how far it has come."""


@dataclass(frozen=True)
class Target:
    """A figure that is to be at least, or at most, `limit`, and what was found."""

    what: str
    side: Side
    limit: float
    unit: str
    figure: Interval | None

    @property
    def text(self) -> str:
        return f"{self.side} {number(self.limit)}{self.unit}"

    @property
    def verdict(self) -> Verdict:
        return verdict(self.figure, self.side, self.limit)

    @property
    def missed(self) -> bool:
        return not self.verdict.startswith("ok")


@dataclass
class Half:
    """Targets, tables and bars of one part."""

    targets: list[Target] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """How it was measured, a paragraph each."""
    absent: dict[str, str] = field(default_factory=dict)
