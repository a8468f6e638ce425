"""Measured paths through a retry: success at the first attempt, and one failure with a retry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.candidate import Candidate, Function, Kind
from benchmarks.rounds import Cost, Effort, Progress, measure


@dataclass(frozen=True)
class Timings:
    """Cost of each candidate on one path."""

    title: str
    kind: Kind
    costs: Mapping[Candidate, Cost]
    failed: Mapping[str, str] = field(default_factory=dict)

    def cost(self, library: str, form: str) -> Cost | None:
        for candidate, cost in self.costs.items():
            if candidate.library == library and candidate.form.name == form:
                return cost
        return None


def succeed() -> int:
    return 1


async def async_succeed() -> int:
    return 1


def fail_alternately() -> Function:
    """Create a function that fails at every odd call."""
    failed = [0]  # kept as in the measurements that the targets come from

    def run() -> int:
        failed[0] ^= 1
        if failed[0]:
            raise ValueError("x")
        return 1

    return run


def async_fail_alternately() -> Function:
    failed = [0]

    async def run() -> int:
        failed[0] ^= 1
        if failed[0]:
            raise ValueError("x")
        return 1

    return run


def by_hand() -> Function:
    """Create a handwritten retry with try and except."""
    fn = fail_alternately()

    def run() -> object:
        try:
            return fn()
        except ValueError:
            return fn()

    return run


def async_by_hand() -> Function:
    fn = async_fail_alternately()

    async def run() -> object:
        try:
            return await fn()
        except ValueError:
            return await fn()

    return run


def success(kind: Kind, candidates: list[Candidate], effort: Effort, progress: Progress) -> Timings:
    direct = succeed if kind == "sync" else async_succeed
    title = f"Success at the first attempt, {kind}, ratio to a direct call"
    return _measure(title, kind, direct, candidates, lambda: direct, effort, progress)


def one_retry(kind: Kind, candidates: list[Candidate], effort: Effort, progress: Progress) -> Timings:
    """Measure one failure and one retry, without the forms that have a time limit."""
    direct, leaf = (by_hand(), fail_alternately) if kind == "sync" else (async_by_hand(), async_fail_alternately)
    retrying = [c for c in candidates if c.form.retries and not c.form.limit]
    title = f"One failure and one retry without sleep, {kind}, ratio to try/except"
    return _measure(title, kind, direct, retrying, leaf, effort, progress)


def _measure(
    title: str,
    kind: Kind,
    direct: Function,
    candidates: list[Candidate],
    leaf: Callable[[], Function],
    effort: Effort,
    progress: Progress,
) -> Timings:
    functions: dict[str, Function] = {}
    rejected: dict[str, str] = {}
    for candidate in candidates:
        try:
            functions[candidate.label] = candidate.form.wrap(leaf())
        except Exception as error:
            rejected[candidate.label] = f"{type(error).__name__}: {error}"
    heading, _, _ = title.partition(", ratio")
    costs, failed = measure(kind, direct, functions, effort, lambda text: progress(f"{heading}: {text}"))
    return Timings(title, kind, {c: costs[c.label] for c in candidates if c.label in costs}, rejected | failed)
