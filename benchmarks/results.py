"""Results of a run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.candidate import Candidate, Kind
from benchmarks.failures import FailureCost
from benchmarks.imports import Import
from benchmarks.paths import Timings
from benchmarks.rounds import Cost

REFERENCE = "import tenacity"


@dataclass(frozen=True)
class Results:
    success: Mapping[Kind, Timings] = field(default_factory=dict)
    retry: Mapping[Kind, Timings] = field(default_factory=dict)
    failures: Mapping[tuple[Kind, Candidate], FailureCost] = field(default_factory=dict)
    imports: Mapping[str, Import] = field(default_factory=dict)
    memory: Mapping[tuple[Kind, Candidate], float] = field(default_factory=dict)
    """Additional bytes of a decorated function (sync) or of a running call (async)."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Cases that were not measured, and the reasons."""

    def success_cost(self, kind: Kind, library: str, form: str) -> Cost | None:
        return self.success[kind].cost(library, form) if kind in self.success else None

    def retry_cost(self, kind: Kind, library: str, form: str) -> Cost | None:
        return self.retry[kind].cost(library, form) if kind in self.retry else None

    def failures_of(self, library: str) -> Iterator[FailureCost]:
        """Cost of failed calls of all forms of a library."""
        return (failure for (_, candidate), failure in self.failures.items() if candidate.library == library)

    def first_failures_of(self, library: str) -> list[FailureCost]:
        """Cost of failed calls of the first sync and the first async form."""
        first: dict[Kind, FailureCost] = {}
        for (kind, candidate), failure in self.failures.items():
            if candidate.library == library:
                first.setdefault(kind, failure)
        return list(first.values())
