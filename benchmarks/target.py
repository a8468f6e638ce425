"""What is promised of a figure, and whether a run bears it out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from benchmarks.interval import Interval, number
from benchmarks.table import Table

Side = Literal["≥", "≤"]
Verdict = Literal["ok", "ok within noise", "MISSED", "NOT MEASURED"]
NONE = "–"
Results = TypeVar("Results")
"""All that one run has found out."""


@dataclass(frozen=True)
class Target:
    """A figure that is to be at least, or at most, `limit`."""

    what: str
    side: Side
    limit: float
    unit: str

    @property
    def text(self) -> str:
        return f"{self.side} {number(self.limit)}{self.unit}"


def _nobody(_results: object) -> str:
    return ""


@dataclass(frozen=True)
class Promise(Target, Generic[Results]):
    """A target, and where its figure stands in the results of a run."""

    read: Callable[[Results], Interval | None]
    peers: Callable[[Results], str] = _nobody
    """What to say of others, beside it."""


@dataclass(frozen=True)
class Judgement:
    """A target beside what was found."""

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
    def found(self) -> str:
        return f"{self.figure}{self.target.unit}" if self.figure else NONE


def verdict(figure: Interval | None, side: Side, limit: float) -> Verdict:
    """Missed only where the whole interval misses it; these machines are noisy."""
    if figure is None:
        return "NOT MEASURED"
    if figure.low > limit if side == "≤" else figure.high < limit:
        return "MISSED"
    met = figure.median <= limit if side == "≤" else figure.median >= limit
    return "ok" if met else "ok within noise"


def judge(results: Results, promises: Sequence[Promise[Results]]) -> list[Judgement]:
    return [Judgement(each, each.read(results), each.peers(results)) for each in promises]


def last_line(judgements: Sequence[Judgement]) -> str:
    missed = [f"{j.target.what} ({j.verdict.lower()})" for j in judgements if j.missed]
    if missed:
        return f"{len(missed)} of {len(judgements)} targets missed: " + "; ".join(missed)
    return f"all {len(judgements)} targets met"


def table(judgements: Sequence[Judgement]) -> Table:
    rows = [(j.target.what, j.target.text, j.found, j.verdict) for j in judgements]
    return Table("Targets", ("what", "target", "redrive", "verdict"), rows)
