"""All that one run has found out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.candidate import Candidate, Kind
from benchmarks.failures import Remains
from benchmarks.imports import Import
from benchmarks.paths import Timings
from benchmarks.rounds import Cost

YARDSTICK = "import tenacity"


@dataclass(frozen=True)
class Results:
    success: Mapping[Kind, Timings] = field(default_factory=dict)
    retry: Mapping[Kind, Timings] = field(default_factory=dict)
    remains: Mapping[tuple[Kind, Candidate], Remains] = field(default_factory=dict)
    imports: Mapping[str, Import] = field(default_factory=dict)
    memory: Mapping[tuple[Kind, Candidate], float] = field(default_factory=dict)
    """Bytes on top of a plain function (sync) or of a plain call in flight (async)."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """What could not be measured, and why."""

    def succeeded(self, kind: Kind, library: str, form: str) -> Cost | None:
        return self.success[kind].cost(library, form) if kind in self.success else None

    def retried(self, kind: Kind, library: str, form: str) -> Cost | None:
        return self.retry[kind].cost(library, form) if kind in self.retry else None

    def left(self, library: str) -> Iterator[Remains]:
        """What failed calls of all forms of a library left behind."""
        return (remains for (_, candidate), remains in self.remains.items() if candidate.library == library)

    def first_left(self, library: str) -> list[Remains]:
        """The same of its first form only: one for sync, one for async."""
        first: dict[Kind, Remains] = {}
        for (kind, candidate), remains in self.remains.items():
            if candidate.library == library:
                first.setdefault(kind, remains)
        return list(first.values())
