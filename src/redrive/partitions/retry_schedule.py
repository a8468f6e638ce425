"""Policy: how often a partition is tried, how far apart, and until when. Terms: a dataset's policy and its limits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from ..backoff import Backoff, steps
from ..core.classify import classify
from ..core.seconds import positive, real, seconds, whole_number
from ..core.text import pluralise
from ..errors import Again, Blocked, Denied, Stop, Unavailable
from ..journal.redaction import redact_text
from ..worker.outcome import is_ledger_fault
from .key import named
from .model import TerminalCause

STEPS = steps(300, 1800, 7200)
"""5 minutes, 30 minutes, 2 hours, each ± 10 %; the last one repeats."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How often, how far apart, until when. Immutable: anything may share it."""

    max_attempts: int = 6
    """Verdicts, since the first or since an operator's last grant. At so many it is terminal."""
    backoff: Backoff = STEPS
    max_age: timedelta | None = None
    """After its date's end a partition is not tried any longer than this; none: for ever. A backfill and an operator may."""
    max_lost: int = 5
    """Extractions in a row that vanished with their worker, without a verdict. At so many it is terminal."""
    poll: float = 900.0
    """Seconds until one looks again for what was not ready; not charged."""
    pause: float = 60.0
    """Seconds for which a source rests after a fault that is everybody's; twice as long each time, up to an hour."""

    def __post_init__(self) -> None:
        whole_number("max_attempts", self.max_attempts)
        whole_number("max_lost", self.max_lost)
        for name in ("poll", "pause"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        if self.max_age is not None and self.max_age <= timedelta(0):
            raise ValueError(f"max_age must be above 0: {self.max_age!r}")
        if not callable(self.backoff):
            raise TypeError(
                f"backoff= is a function of (attempt, draw), such as backoff.steps(300, 1800, 7200): {self.backoff!r}"
            )


@dataclass(frozen=True, slots=True)
class Terms:
    """A dataset as the control plane knows it. Immutable: anything may share it."""

    source: str
    query_name: str
    policy: Policy = field(default_factory=Policy)
    concurrency: int = 10
    """Leases of this dataset at a time, over all workers."""
    source_concurrency: int | None = None
    """Leases of its source at a time, over all datasets and workers; the smallest that any of its datasets says counts."""
    rate: float | None = None
    """Leases of this dataset that begin in a second, over all workers."""
    source_rate: float | None = None
    """Of its source, over all datasets and workers; the smallest that any of its datasets says counts."""

    def __post_init__(self) -> None:
        named("source", self.source)
        named("query", self.query_name)
        whole_number("concurrency", self.concurrency)
        if self.source_concurrency is not None:
            whole_number("source_concurrency", self.source_concurrency)
        for name in ("rate", "source_rate"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, _rate(name, given))

    @property
    def dataset(self) -> tuple[str, str]:
        """What it is known by."""
        return self.source, self.query_name


def _rate(name: str, value: object) -> float:
    given = real(name, value)
    if given <= 0:
        raise ValueError(f"{name} is extractions that start in a second, above 0: {value!r}")
    return given


def share(name: str, value: object, /) -> float:
    """A part of one: above 0, below 1."""
    given = real(name, value)
    if not 0 < given < 1:
        raise ValueError(f"{name} is a part of one, above 0 and below 1: {value!r}")
    return given


MeaningKind: TypeAlias = Literal["ordinary", "rate_limited", "shared", "systemic", "final", "not_ready", "ledger"]
REFUSED = frozenset((401, 402, 403))
"""HTTP statuses of a refused credential: the source's where several customers get them, else one customer's."""
LONGEST_PAUSE = 3600.0


class Meaning(NamedTuple):
    """What an extraction's error means for its partition."""

    kind: MeaningKind
    """ordinary: rejected, charged, retried. shared: the same, unless other customers of the source get it too. final: rejected,
    and terminal at once. The others are given back and do not count as attempts. systemic: declared to be the source's.
    ledger: our own database could not be used, which says nothing of the source."""
    reason: str
    """In a word: equal for errors of one cause."""
    message: str
    after: float | None = None
    """Not before so many seconds."""
    passing: bool = False
    """Of an ordinary one: that trying again may help is known, and not only hoped. Many of these at once are an outage."""


def meaning(error: Exception, now: datetime, /) -> Meaning:
    """What this error means. `Again(free=True)` is not ready, `Stop` final; `Blocked` and storage errors are shared.

    Any other error that the ledger's database caused is the ledger's, whatever was raised from it.
    """
    reason, message = type(error).__name__, redact_text(f"{type(error).__name__}: {error}")
    if isinstance(error, Again) and error.free:
        return Meaning("not_ready", "not_ready", message, _after(error))
    if isinstance(error, Stop):
        return Meaning("final", "stopped", message)
    if isinstance(error, Blocked):
        after = None if error.until is None else max(0.0, (error.until - now).total_seconds())
        return Meaning("systemic" if error.systemic else "shared", "blocked", message, after)
    if is_ledger_fault(error):
        return Meaning("ledger", "ledger", message)
    if isinstance(error, Again):
        return Meaning("ordinary", "again", message, _after(error))
    if isinstance(error, (Denied, Unavailable)):
        return Meaning("shared", reason, message)
    fault = classify(error, now=now)
    if fault.kind == "throttled":
        return Meaning("rate_limited", reason, message, fault.after)
    if fault.status in REFUSED:
        return Meaning("shared", f"{reason} {fault.status}", message, fault.after)
    return Meaning("ordinary", reason, message, fault.after, passing=fault.retryable)


def _after(error: Again) -> float | None:
    return None if error.after is None else seconds("after", error.after)


class Next(NamedTuple):
    """When a partition is tried again: at a moment, or never because."""

    due: datetime | None
    strategy: str
    terminal: TerminalCause | None = None


def after_rejection(
    policy: Policy, attempts: int, limit: int, seed: float, now: datetime, ends: datetime | None, /, *,
    after: float | None = None, final: bool = False,
) -> Next:  # fmt: skip
    """After a rejection, the nth (attempts) of at most `limit`. ends: when the partition is too old to be tried; none: never."""
    if final:
        return Next(None, "a retry cannot succeed", "error")
    if attempts >= limit:
        return Next(None, f"{attempts} of {pluralise(limit, 'attempt')}", "attempts")
    wait = policy.backoff(attempts, draw(seed, attempts))
    how = f"backoff after attempt {attempts} of {limit}"
    if after is not None and after > wait:
        wait, how = after, f"the source's own words after attempt {attempts} of {limit}"
    due = now + timedelta(seconds=max(0.0, wait))
    if ends is not None and due >= ends:
        return Next(None, f"too old: no retries after {ends:%Y-%m-%d %H:%M}Z", "age")
    return Next(due, f"{how}: {_spoken(wait)}")


def after_loss(policy: Policy, lost: int, seed: float, now: datetime, ends: datetime | None, /) -> Next:
    """After a run that nobody heard of again, the nth in a row."""
    if lost >= policy.max_lost:
        return Next(None, pluralise(lost, "run vanished with its worker", "runs in a row vanished with their worker"), "lost")
    if ends is not None and now >= ends:
        return Next(None, f"too old: no retries after {ends:%Y-%m-%d %H:%M}Z", "age")
    wait = 0.0 if lost == 1 else policy.backoff(lost - 1, draw(seed, -lost))
    return Next(now + timedelta(seconds=wait), f"the run before was lost ({lost} of {policy.max_lost}): {_spoken(wait)}")


def after_return(policy: Policy, cause: str, after: float | None, seed: float, attempt_no: int, now: datetime, /) -> Next:
    """After a run that was given back without a verdict."""
    if cause == "stopped":
        return Next(now, "its worker stopped")
    wait = after if after is not None else {"not_ready": policy.poll}.get(cause, policy.pause)
    # Those that were turned away together come back spread, and never before the source said.
    wait += min(wait, 60.0) * 0.1 * draw(seed, attempt_no)
    how = {
        "not_ready": "not ready yet", "rate_limited": "rate limited", "systemic": "the source is down",
        "ledger": "the ledger could not be used",
    }[cause]  # fmt: skip
    return Next(now + timedelta(seconds=wait), f"{how}; does not count; next attempt {_when(wait)}")


def pause_of(policy: Policy, probes: int, after: float | None, /) -> float:
    """Seconds for which a source rests, after so many probes that failed."""
    return max(after or 0.0, min(LONGEST_PAUSE, policy.pause * 2.0 ** min(probes, 20)))


def draw(seed: float, turn: int, /) -> float:
    """A number from [0, 1) that is the same each time: what was shown is what is used."""
    found = hashlib.blake2b(f"{seed!r}:{turn}".encode(), digest_size=7).digest()
    return int.from_bytes(found, "big") / 2**56


def _when(wait: float) -> str:
    return "now" if wait < 1 else f"in {_spoken(wait)}"


def _spoken(wait: float) -> str:
    if wait < 1:
        return "at once"
    if wait < 120:
        return f"{wait:.0f} s"
    return f"{wait / 60:.0f} min" if wait < 7200 else f"{wait / 3600:.1f} h"
