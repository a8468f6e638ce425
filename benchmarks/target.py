"""Targets of benchmarks, and whether a run meets them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from benchmarks.interval import Interval, number
from benchmarks.table import Table

Side = Literal["≥", "≤"]
Verdict = Literal["ok", "ok within noise", "MISSED", "NOT MEASURED"]
NONE = "–"
Results = TypeVar("Results")
"""The results of one run."""
HOW_TO_READ = (
    "Figures are medians, with 95 % confidence intervals in brackets. A target is missed only if the whole interval misses it."
)


@dataclass(frozen=True)
class Target:
    """A lower or upper limit of a figure."""

    what: str
    side: Side
    limit: float
    unit: str

    @property
    def text(self) -> str:
        return f"{self.side} {number(self.limit)}{self.unit}"


def _no_peers(_results: object) -> str:
    return ""


@dataclass(frozen=True)
class MeasuredTarget(Target, Generic[Results]):
    """A target with the function that reads its figure from the results."""

    read: Callable[[Results], Interval | None]
    peers: Callable[[Results], str] = _no_peers
    """Describes the figures of other libraries."""


@dataclass(frozen=True)
class Outcome:
    """A target with its measured figure."""

    target: Target
    figure: Interval | None
    peers: str = ""

    @property
    def verdict(self) -> Verdict:
        return verdict(self.figure, self.target.side, self.target.limit)

    @property
    def missed(self) -> bool:
        return not self.verdict.startswith("ok")

    @property
    def result(self) -> str:
        return f"{self.figure}{self.target.unit}" if self.figure else NONE


def verdict(figure: Interval | None, side: Side, limit: float) -> Verdict:
    """Compare a figure with a limit. Machines are noisy, so a target is missed only if the whole interval misses it."""
    if figure is None:
        return "NOT MEASURED"
    if figure.low > limit if side == "≤" else figure.high < limit:
        return "MISSED"
    met = figure.median <= limit if side == "≤" else figure.median >= limit
    return "ok" if met else "ok within noise"


def check_targets(results: Results, targets: Sequence[MeasuredTarget[Results]]) -> list[Outcome]:
    return [Outcome(each, each.read(results), each.peers(results)) for each in targets]


def summary_line(outcomes: Sequence[Outcome]) -> str:
    missed = [f"{j.target.what} ({j.verdict.lower()})" for j in outcomes if j.missed]
    if missed:
        return f"{len(missed)} of {len(outcomes)} targets missed: " + "; ".join(missed)
    return f"all {len(outcomes)} targets met"


def table(outcomes: Sequence[Outcome]) -> Table:
    rows = [(j.target.what, j.target.text, j.result, j.verdict) for j in outcomes]
    return Table("Targets", ("case", "target", "redrive", "verdict"), rows)
