"""Filters that operators and programs pass to queries. Free of SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from .dead_letter import DeadLetterStatus
from .model import DisplayState


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs. The default selects all of them. Immutable.

    A job that a replay has replaced is selected only by its id.

    Args:
        ids: Ids of jobs.
        key: Job key.
        key_prefix: First characters of the job key.
        user: User in the job key, as the correlation id `user_id`, or as the tag `user`.
        correlation_id: Value of a correlation id.
        kind: Job type.
        state: State as it is shown, such as `"queued"`.
        error: Text in the last error, in any case, or its signature.
        since: Submitted at or after this time.
        until: Submitted before this time.
        worker: Worker that runs the job, or of a failed attempt.
        tenant: Tenant.
        tags: Values of declared tags, by name.
        text: Any of job key, its prefix, tag, correlation id, user and error.
    """

    ids: tuple[int, ...] = ()
    key: str | None = None
    key_prefix: str | None = None
    user: str | None = None
    correlation_id: str | None = None
    kind: str | None = None
    state: DisplayState | None = None
    error: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    worker: str | None = None
    tenant: str | None = None
    tags: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
    text: str | None = None

    def __post_init__(self) -> None:
        """Convert ids to numbers and tags to pairs. Reject times without a time zone."""
        object.__setattr__(self, "ids", tuple(map(int, self.ids)))
        tags = self.tags.items() if isinstance(self.tags, Mapping) else self.tags
        object.__setattr__(self, "tags", tuple(sorted((str(k), str(v)) for k, v in tags)))
        for time in (self.since, self.until):
            if time is not None and time.tzinfo is None:
                raise ValueError(f"a datetime needs a time zone: {time!r}")

    @property
    def tag_pairs(self) -> tuple[tuple[str, str], ...]:
        """Names and values of tags, in order."""
        return tuple(self.tags.items()) if isinstance(self.tags, Mapping) else self.tags

    @property
    def selects_all(self) -> bool:
        """Whether nothing narrows it down."""
        return not self.as_dict()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that narrow it down."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value not in (None, ())}


class DeadLetterConditions(NamedTuple):
    """Which dead letters. None: any. Immutable."""

    ids: Sequence[int] | None = None
    status: DeadLetterStatus | None = None
    kind: str | None = None
    reason: str | None = None
    error: str | None = None
    """Text in the error, in any case, or the signature."""
    signature: str | None = None
    """An empty text: without a signature."""
    job_id: int | None = None
    blocked: bool | None = None
    since: datetime | None = None
    """Died since then, for the first time or as a replay."""
    until: datetime | None = None
    """Died last before then."""
    source: str | None = None
    """Source of the message. "*": any source."""
