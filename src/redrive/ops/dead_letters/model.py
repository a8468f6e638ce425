"""Dead letters as operators see them: which ones are selected, and what is known of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from ...core.job_reasons import UNCOUNTED_REASONS
from ...journal.redaction import redact, redact_text
from ...ledger.dead_letter import DeadLetterSummary
from ...ledger.filters import DeadLetterConditions, JobFilter

if TYPE_CHECKING:
    from ...ledger.dead_letter import DeadLetterStatus
    from ...ledger.model import Attempt

Letter: TypeAlias = DeadLetterSummary
MAX_GROUPS = 500
"""Groups that are returned, the largest first."""
MAX_GROUPED = 100_000
"""Dead letters that are read for groups if a filter needs each of them. It bounds the time."""
MAX_REVEALED_BYTES = 200_000
REPLAY_NOTES: Mapping[str, str] = {
    "undecodable": "a replay needs code that accepts the stored arguments, or a corrected payload "
    "(--edit FILE)",
    "payload_lost": "a replay fails, because the payload is lost; send the event again, then "
    "discard this one",
    "result": "the function has run; replay it only if it is idempotent",
}
"""By the reason of a dead letter: what to know before a replay. Other reasons need no note."""


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters. The default selects all of them. Immutable.

    Args:
        ids: Ids of dead letters.
        kind: Job type.
        reason: Why the job died.
        error: Text in the error, or its signature.
        since: Died last at or after this time.
        limit: Maximum number.
        source: Source of the messages. `"*"`: any source.
        upto: Highest id. It excludes dead letters that came after the operator looked.
        until: Died last before this time.
        jobs: Only dead letters of these jobs.
    """

    ids: tuple[int | str, ...] = ()
    kind: str | None = None
    reason: str | None = None
    error: str | None = None
    since: datetime | None = None
    limit: int | None = None
    source: str | None = None
    upto: int | None = None
    until: datetime | None = None
    jobs: JobFilter | None = None

    def __post_init__(self) -> None:
        """Convert ids to numbers. Reject a limit below 1, and times without a time zone."""
        object.__setattr__(self, "ids", tuple(map(int, self.ids)))
        if self.limit is not None and (isinstance(self.limit, bool) or self.limit < 1):
            raise ValueError(f"limit must be at least 1: {self.limit!r}")
        for time in (self.since, self.until):
            if time is not None and time.tzinfo is None:
                raise ValueError(f"a datetime needs a time zone: {time!r}")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The ids. `Dead.dead_id` is a text, so the filter takes both."""
        return tuple(map(int, self.ids))

    @property
    def selects_all(self) -> bool:
        """Whether nothing narrows it down. A limit does not."""
        narrowing = (self.kind, self.reason, self.error, self.since, self.until, self.source)
        if self.jobs is not None and not self.jobs.selects_all:
            return False
        return not self.ids and all(value is None for value in narrowing)

    def require_narrow(self) -> None:
        """Raise ValueError if it selects everything. An empty text is in every error."""
        for name in ("kind", "reason", "error", "source"):
            if getattr(self, name) == "":
                raise ValueError(f"{name}: empty text; leave it out, or pass a text")
        if self.selects_all:
            raise ValueError(
                "no dead letters selected; pass ids, kind, error, reason, since or until, "
                "because an empty selection means all"
            )

    def narrowed(self, other: DeadLetterFilter, /) -> DeadLetterFilter:
        """Return this filter, with the fields of another one that it leaves out.

        Args:
            other: The other filter.

        Raises:
            ValueError: Both filters have a field, with different values.
        """
        fields = {name: getattr(other, name) for name in other.as_dict()}
        for name, value in fields.items():
            if name in self.as_dict() and getattr(self, name) != value:
                raise ValueError(f"{name}: specified twice; use it once")
        return replace(self, **fields)

    def to_query(self, status: DeadLetterStatus | None, /) -> DeadLetterConditions:
        """Return the filter of the ledger. Limit and highest id are up to the caller.

        Args:
            status: Status of the dead letters. None: all.
        """
        return DeadLetterConditions(
            ids=self.numbers or None,
            status=status,
            kind=self.kind,
            reason=self.reason,
            error=self.error,
            since=self.since,
            until=self.until,
            source=self.source,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that narrow it down."""
        values = {name: getattr(self, name) for name in self.__slots__}
        if self.jobs is not None:
            values["jobs"] = self.jobs.as_dict()
        return {name: value for name, value in values.items() if value not in (None, ())}


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one job type that died of one cause."""

    kind: str
    signature: str
    error: str | None
    """Error of the newest."""
    count: int
    first: datetime
    last: datetime
    letter_id: int
    """Id of the newest."""


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt that did not succeed."""

    number: int
    outcome: str
    worker: str | None
    reason: str | None
    error: str | None
    started_at: datetime | None
    ended_at: datetime
    counted: bool = True
    """False: it does not count as an attempt. Then its number is that of another one, or 0."""


@dataclass(frozen=True, slots=True)
class ReplayChainJob:
    """The job that died, or one of its replays."""

    id: int
    state: str
    """State as it is shown."""
    attempts: int
    crashes: int
    created_at: datetime
    due_at: datetime
    ended_at: datetime | None
    worker: str | None
    replay_of: int | None
    tries: tuple[Try, ...]
    edited_by: str | None = None
    """Who edited the payload of this replay. None: it has the payload of the dead letter."""


@dataclass(frozen=True, slots=True)
class LetterReport:
    """Everything that is known of a dead letter, without secrets."""

    letter: Letter
    payload: Any
    """The payload as JSON or text. None: it is neither."""
    payload_bytes: int
    headers: Mapping[str, str]
    ids: Mapping[str, str]
    """Correlation ids."""
    jobs: tuple[ReplayChainJob, ...]
    """The job that died, then its replays in their order."""
    now: datetime

    @property
    def edited_jobs(self) -> tuple[int, ...]:
        """Ids of the replays with an edited payload."""
        return tuple(job.id for job in self.jobs if job.edited_by is not None)


@dataclass(frozen=True, slots=True)
class Revealed:
    """A payload as it is stored, with its secrets."""

    text: str
    """The payload as text, or in hexadecimal if it is not text."""
    size: int
    cut: bool
    """Whether the payload is longer than the text."""


def failed_attempts(attempts: Iterable[Attempt], /) -> tuple[Try, ...]:
    """Return the stored attempts of a job, in order. An attempt that succeeds is not stored."""
    names = [name for name in Try.__slots__ if name != "counted"]
    tries, last = [], 0
    for attempt in attempts:
        # `Again(free=True)` has the same reason as one that counts, but no number of its own.
        has_number = attempt.reason != "again" or attempt.number > last
        is_counted = attempt.reason not in UNCOUNTED_REASONS and has_number
        fields = {name: getattr(attempt, name) for name in names}
        tries.append(Try(**fields, counted=is_counted))
        last = attempt.number if is_counted else last
    return tuple(tries)


def readable(payload: bytes, /) -> Any:
    """Return a payload as JSON or text, without secrets. None: it is neither."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    try:
        value = json.loads(text, parse_constant=_reject_constant)
        # JSON can escape half of a surrogate pair, which cannot be sent.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return redact_text(text) if text.isprintable() or "\n" in text else None
    return redact(value)


def reveal(payload: bytes, /) -> Revealed:
    """Return the start of a payload as text, or in hexadecimal if it is not text."""
    start = payload[:MAX_REVEALED_BYTES]
    try:
        text = start.decode()
    except UnicodeDecodeError as wrong:
        # The cut may have split the last character, which takes up to 4 bytes.
        is_cut = wrong.start > MAX_REVEALED_BYTES - 4
        text = start[: wrong.start].decode() if is_cut else start.hex(" ")
    return Revealed(text, len(payload), len(start) < len(payload))


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
