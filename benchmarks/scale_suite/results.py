"""Curves and targets of a run."""

from dataclasses import dataclass, field
from functools import partial
from math import log
from statistics import fmean, median

from benchmarks.interval import Interval
from benchmarks.target import MeasuredTarget

ROWS, TYPES, TENANTS, PAYLOADS, WORKERS = PARTS = ("rows", "types", "tenants", "payloads", "workers")
DATABASES = ("Postgres", "SQLite")
MAX_EXPONENT = 0.05
"""An exponent of 0.05 is a factor of 1.26 for a hundred times as many rows."""
FLAT_BY_ROWS = (
    "submit one job",
    "submit a key that exists",
    "submit 100 jobs",
    "claim 100 jobs and settle 100",
    "receive an event",
    "list dead letters",
    "failure groups",
    "find a job by its key",
    "counts of partitions",
)
"""Operations whose cost must not grow with the rows of the ledger."""
CLAIM = "claim 100 jobs and settle 100"
FAIR_CLAIM = "fair claim of 100 jobs"
WHOLE = "submit, claim and settle one job"
EMPTY_COMMANDS = "empty commands"


@dataclass(frozen=True)
class Name:
    """Which operation a curve is of."""

    part: str
    database: str
    operation: str


@dataclass
class Curve:
    """The figures of one operation by size, one figure per round."""

    points: dict[int, list[float]] = field(default_factory=dict)

    def add(self, size: int, figure: float) -> None:
        self.points.setdefault(size, []).append(figure)

    @property
    def exponent(self) -> Interval | None:
        """The exponent by which the figure grows with the size, by least squares, of each round."""
        sizes = sorted(self.points)
        if len(sizes) < 2:
            return None
        rounds = zip(*(self.points[size] for size in sizes), strict=True)
        return Interval.of([_slope(sizes, figures) for figures in rounds])

    def medians(self) -> dict[int, float]:
        return {size: median(figures) for size, figures in sorted(self.points.items())}


def _slope(sizes: list[int], figures: tuple[float, ...]) -> float:
    x, y = [log(size) for size in sizes], [log(figure) for figure in figures]
    middle_x, middle_y = fmean(x), fmean(y)
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / sum((a - middle_x) ** 2 for a in x)


@dataclass
class Results:
    """Curves by operation. Times are milliseconds, but for workers, where they are commands per second."""

    curves: dict[Name, Curve] = field(default_factory=dict)
    memory: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    """MiB of the process that measures payloads, or of one worker, by part, database and size."""
    connections: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)
    """Connections to Postgres, of all processes."""
    fsync: Interval | None = None

    def curve(self, part: str, database: str, operation: str) -> Curve:
        return self.curves.setdefault(Name(part, database, operation), Curve())

    def exponent(self, name: Name) -> Interval | None:
        curve = self.curves.get(name)
        return None if curve is None else curve.exponent


def _flat(part: str, operation: str, database: str) -> MeasuredTarget[Results]:
    name = Name(part, database, operation)
    return MeasuredTarget(
        f"{database}, {operation}, by {part}, exponent", "≤", MAX_EXPONENT, "", partial(_read_exponent, name=name)
    )


def _read_exponent(results: Results, *, name: Name) -> Interval | None:
    return results.exponent(name)


TARGETS = tuple(
    _flat(part, operation, database)
    for database in DATABASES
    for part, operation in (*((ROWS, each) for each in FLAT_BY_ROWS), (TYPES, CLAIM), (TENANTS, FAIR_CLAIM))
)
