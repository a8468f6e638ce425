"""When a partition is attempted again: policy and limits of a dataset, and the meaning of errors.

All decisions are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from ..backoff import Backoff, steps
from ..core.classification.classify import classify
from ..core.seconds import positive, real, seconds, whole_number
from ..core.text import pluralise
from ..errors import Again, Blocked, Denied, Stop, Unavailable
from ..journal.redaction import redact_text
from ..worker.outcome import is_ledger_fault
from .key import check_name
from .model import ReleaseCause, TerminalCause

DEFAULT_BACKOFF = steps(300, 1800, 7200)
"""5 minutes, 30 minutes, then every 2 hours, each ± 10 %."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How often, how far apart and how long a partition is attempted. Immutable."""

    max_attempts: int = 6
    """Verdicts, since the first or since the last grant of an operator. Then it gives up."""
    backoff: Backoff = DEFAULT_BACKOFF
    max_age: timedelta | None = None
    """How long after its day a partition is retried automatically. None: without a limit.

    Backfills and requests of operators are exempt.
    """
    max_lost: int = 5
    """Runs in a row that were lost with their worker. Then the partition gives up."""
    poll: float = 900.0
    """Seconds until data that was not ready is requested again. Does not count as an attempt."""
    pause: float = 60.0
    """Seconds that a source is paused after an outage: doubled each time, at most an hour."""

    def __post_init__(self) -> None:
        whole_number("max_attempts", self.max_attempts)
        whole_number("max_lost", self.max_lost)
        for name in ("poll", "pause"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if self.max_age is not None and self.max_age <= timedelta(0):
            raise ValueError(f"max_age must be above 0: {self.max_age!r}")
        if not callable(self.backoff):
            raise TypeError(
                "backoff= is a function of (attempt, draw), such as "
                f"backoff.steps(300, 1800, 7200): {self.backoff!r}"
            )


@dataclass(frozen=True, slots=True)
class DatasetLimits:
    """The policy and the limits of a dataset. Immutable.

    If the datasets of a source set different limits for it, the smallest one counts.
    """

    source: str
    query_name: str
    policy: Policy = field(default_factory=Policy)
    concurrency: int = 10
    """Maximum leases of this dataset at the same time, over all workers."""
    source_concurrency: int | None = None
    """The same for all datasets of its source."""
    rate: float | None = None
    """Maximum leases of this dataset that start in a second, over all workers."""
    source_rate: float | None = None
    """The same for all datasets of its source."""

    def __post_init__(self) -> None:
        check_name("source", self.source)
        check_name("query", self.query_name)
        whole_number("concurrency", self.concurrency)
        if self.source_concurrency is not None:
            whole_number("source_concurrency", self.source_concurrency)
        for name in ("rate", "source_rate"):
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _rate(name, value))

    @property
    def dataset(self) -> tuple[str, str]:
        """Its source and query."""
        return self.source, self.query_name


def policy_of(
    datasets: Mapping[tuple[str, str], DatasetLimits], dataset: tuple[str, str], /
) -> Policy:
    """Return the policy of a dataset, or the default one if the dataset is unknown."""
    limits = datasets.get(dataset)
    return Policy() if limits is None else limits.policy


def _rate(name: str, value: object) -> float:
    rate = real(name, value)
    if rate <= 0:
        raise ValueError(f"{name} is extractions that start in a second, above 0: {value!r}")
    return rate


def check_share(name: str, value: object, /) -> float:
    """Return a share if it is above 0 and below 1."""
    share = real(name, value)
    if not 0 < share < 1:
        raise ValueError(f"{name} is a part of one, above 0 and below 1: {value!r}")
    return share


# ---- the meaning of errors ----

MeaningKind: TypeAlias = Literal[
    "ordinary", "rate_limited", "shared", "systemic", "final", "not_ready", "ledger"
]
REFUSED_STATUSES = frozenset((401, 402, 403))
"""HTTP statuses of a refused credential. If several customers get them, it is the source's."""
MAX_PAUSE_SECONDS = 3600.0


class ErrorMeaning(NamedTuple):
    """What the error of an extraction means for its partition."""

    kind: MeaningKind
    """- `ordinary`: rejected, counts as an attempt, retried.
    - `shared`: the same, unless other customers of the source get it too.
    - `final`: rejected, and the partition gives up at once.
    - `systemic`, `rate_limited`, `not_ready`, `ledger`: released, does not count as an attempt.

    `systemic` is declared to be the source's fault. `ledger` means that our own database could not
    be used, which says nothing about the source.
    """
    reason: str
    """A word that is equal for errors of one cause."""
    message: str
    after: float | None = None
    """Minimum seconds until the next attempt."""
    passing: bool = False
    """Of an ordinary error: it is known to be transient. Many at the same time are an outage."""


def meaning_of(error: Exception, now: datetime, /) -> ErrorMeaning:
    """Return what an error means.

    `Again(free=True)` is not ready, `Stop` is final, `Blocked` and storage errors are shared. Any
    other error that the ledger's database caused is the ledger's, even if it was wrapped.
    """
    reason = type(error).__name__
    message = redact_text(f"{reason}: {error}")
    if isinstance(error, Again) and error.free:
        return ErrorMeaning("not_ready", "not_ready", message, _after(error))
    if isinstance(error, Stop):
        return ErrorMeaning("final", "stopped", message)
    if isinstance(error, Blocked):
        after = None if error.until is None else max(0.0, (error.until - now).total_seconds())
        return ErrorMeaning("systemic" if error.systemic else "shared", "blocked", message, after)
    if is_ledger_fault(error):
        return ErrorMeaning("ledger", "ledger", message)
    if isinstance(error, Again):
        return ErrorMeaning("ordinary", "again", message, _after(error))
    if isinstance(error, (Denied, Unavailable)):
        return ErrorMeaning("shared", reason, message)
    fault = classify(error, now=now)
    if fault.kind == "throttled":
        return ErrorMeaning("rate_limited", reason, message, fault.after)
    if fault.status in REFUSED_STATUSES:
        return ErrorMeaning("shared", f"{reason} {fault.status}", message, fault.after)
    return ErrorMeaning("ordinary", reason, message, fault.after, passing=fault.retryable)


def _after(error: Again) -> float | None:
    return None if error.after is None else seconds("after", error.after)


# ---- the next attempt ----


class NextAttempt(NamedTuple):
    """When a partition is attempted again, or why never."""

    due: datetime | None
    strategy: str
    terminal: TerminalCause | None = None


class AttemptBudget(NamedTuple):
    """Used attempts since the last grant, and how many are allowed."""

    used: int
    limit: int

    @property
    def is_used_up(self) -> bool:
        """Whether no attempt is left."""
        return self.used >= self.limit


def after_rejection(
    policy: Policy,
    budget: AttemptBudget,
    seed: float,
    now: datetime,
    max_age_at: datetime | None,
    /,
    *,
    after: float | None = None,
    final: bool = False,
) -> NextAttempt:
    """Return the attempt after a rejection.

    Args:
        budget: The attempts, with this one.
        seed: For the jitter.
        max_age_at: When the partition is too old to be retried. None: never.
        after: Minimum seconds to wait.
        final: A retry cannot succeed.
    """
    attempts, limit = budget
    if final:
        return NextAttempt(None, "a retry cannot succeed", "error")
    if budget.is_used_up:
        return NextAttempt(None, f"{attempts} of {pluralise(limit, 'attempt')}", "attempts")
    wait = policy.backoff(attempts, draw(seed, attempts))
    strategy = f"backoff after attempt {attempts} of {limit}"
    if after is not None and after > wait:
        wait = after
        strategy = f"the source's own words after attempt {attempts} of {limit}"
    due = now + timedelta(seconds=max(0.0, wait))
    if max_age_at is not None and due >= max_age_at:
        return NextAttempt(None, too_old(max_age_at), "age")
    return NextAttempt(due, f"{strategy}: {_duration(wait)}")


def after_loss(
    policy: Policy, lost: int, seed: float, now: datetime, max_age_at: datetime | None, /
) -> NextAttempt:
    """Return the attempt after a number of runs in a row that were lost with their worker."""
    if lost >= policy.max_lost:
        runs = ("run vanished with its worker", "runs in a row vanished with their worker")
        return NextAttempt(None, pluralise(lost, *runs), "lost")
    if max_age_at is not None and now >= max_age_at:
        return NextAttempt(None, too_old(max_age_at), "age")
    wait = 0.0 if lost == 1 else policy.backoff(lost - 1, draw(seed, -lost))
    return NextAttempt(
        now + timedelta(seconds=wait),
        f"the run before was lost ({lost} of {policy.max_lost}): {_duration(wait)}",
    )


def too_old(max_age_at: datetime, /) -> str:
    """Return why a partition past its maximum age is not retried."""
    return f"too old: no retries after {max_age_at:%Y-%m-%d %H:%M} UTC"


SOURCE_DOWN = "the source is down"
"""Begins the strategy of partitions that were queued again in an outage."""
_RELEASE_WORDS = {
    "not_ready": "not ready yet",
    "rate_limited": "rate limited",
    "systemic": SOURCE_DOWN,
    "ledger": "the ledger could not be used",
}


def after_release(
    policy: Policy,
    cause: ReleaseCause,
    after: float | None,
    seed: float,
    attempt_no: int,
    now: datetime,
    /,
) -> NextAttempt:
    """Return the attempt after a run that was released without a verdict."""
    if cause == "stopped":
        return NextAttempt(now, "its worker stopped")
    wait = policy.poll if cause == "not_ready" else policy.pause
    if after is not None:
        wait = after
    # Jitter spreads partitions that were rejected together, and never shortens the source's wait.
    wait += min(wait, 60.0) * 0.1 * draw(seed, attempt_no)
    next_attempt = "now" if wait < 1 else f"in {_duration(wait)}"
    return NextAttempt(
        now + timedelta(seconds=wait),
        f"{_RELEASE_WORDS[cause]}; does not count; next attempt {next_attempt}",
    )


def pause_seconds(policy: Policy, probes: int, after: float | None, /) -> float:
    """Return how long a source is paused after a number of failed probes."""
    return max(after or 0.0, min(MAX_PAUSE_SECONDS, policy.pause * 2.0 ** min(probes, 20)))


def draw(seed: float, turn: int, /) -> float:
    """Return deterministic jitter: the same seed and attempt give the same number in [0, 1).

    So the displayed time is the real one.
    """
    digest = hashlib.blake2b(f"{seed!r}:{turn}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def _duration(wait: float) -> str:
    if wait < 1:
        return "at once"
    if wait < 120:
        return f"{wait:.0f} s"
    return f"{wait / 60:.0f} min" if wait < 7200 else f"{wait / 3600:.1f} h"
