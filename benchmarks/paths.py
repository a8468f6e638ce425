"""The paths through a retry that are timed: success at the first attempt, and one failure that is tried again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.candidate import Candidate, Function, Kind
from benchmarks.rounds import Cost, Effort, Progress, measure


@dataclass(frozen=True)
class Timings:
    """One section of the report: what every candidate costs on one path."""

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


def flip() -> Function:
    """Fails at every odd call."""
    failed = [0]  # as in the first measurements, from which the targets come

    def run() -> int:
        failed[0] ^= 1
        if failed[0]:
            raise ValueError("x")
        return 1

    return run


def async_flip() -> Function:
    failed = [0]

    async def run() -> int:
        failed[0] ^= 1
        if failed[0]:
            raise ValueError("x")
        return 1

    return run


def by_hand() -> Function:
    """What one would write without a library: try, and call again."""
    fn = flip()

    def run() -> object:
        try:
            return fn()
        except ValueError:
            return fn()

    return run


def async_by_hand() -> Function:
    fn = async_flip()

    async def run() -> object:
        try:
            return await fn()
        except ValueError:
            return await fn()

    return run


def success(kind: Kind, candidates: list[Candidate], effort: Effort, progress: Progress) -> Timings:
    plain = succeed if kind == "sync" else async_succeed
    title = f"Success at the first attempt, {kind}: ratio to a plain call"
    return _timings(title, kind, plain, candidates, lambda: plain, effort, progress)


def one_retry(kind: Kind, candidates: list[Candidate], effort: Effort, progress: Progress) -> Timings:
    """Time limits are left out: what is compared is the machinery of the retry."""
    plain, leaf = (by_hand(), flip) if kind == "sync" else (async_by_hand(), async_flip)
    able = [c for c in candidates if c.form.retries and not c.form.limit]
    title = f"One failure and one retry without sleep, {kind}: ratio to try/except written by hand"
    return _timings(title, kind, plain, able, leaf, effort, progress)


def _timings(
    title: str,
    kind: Kind,
    plain: Function,
    candidates: list[Candidate],
    leaf: Callable[[], Function],
    effort: Effort,
    progress: Progress,
) -> Timings:
    functions: dict[str, Function] = {}
    unfit: dict[str, str] = {}
    for candidate in candidates:
        try:
            functions[candidate.label] = candidate.form.wrap(leaf())
        except Exception as error:
            unfit[candidate.label] = f"{type(error).__name__}: {error}"
    heading, _, _ = title.partition(":")
    costs, failed = measure(kind, plain, functions, effort, lambda text: progress(f"{heading}: {text}"))
    return Timings(title, kind, {c: costs[c.label] for c in candidates if c.label in costs}, unfit | failed)
