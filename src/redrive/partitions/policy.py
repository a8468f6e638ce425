"""Policy: how often a partition is tried, how far apart, and until when. Terms: a dataset's policy and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from ..backoff import Backoff, steps
from ..core.seconds import positive, real, whole_number
from .partition import named

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
