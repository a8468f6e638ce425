"""Jobs of every kind: which there are, and all that is known of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..journal.redaction import redact
from .dead_letters.queries import Try, readable

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..ledger.model import DisplayState, Job


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job, in a list of them."""

    id: int
    kind: str
    key: str
    state: str
    """As people call it."""
    priority: int
    attempts: int
    max_attempts: int | None
    crashes: int
    created_at: datetime
    due_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    deadline: datetime | None
    worker: str | None
    reason: str | None
    error: str | None
    replay_of: int | None
    dead_id: int | None
    """The dead letter that it replays, or that it became."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """All that is known of one job, without secrets."""

    job: JobLine
    says: str
    """Its state and what happens next, in a sentence. May have commands in backticks."""
    payload: Any
    """What is in it, as JSON or as text; None where it is neither."""
    payload_bytes: int
    result: Any
    headers: Mapping[str, str]
    ids: Mapping[str, str]
    """Correlation ids."""
    tries: tuple[Try, ...]
    """Attempts that did not end well."""
    now: datetime


def listed(ledger: Ledger, /, *, state: DisplayState | None = None, kind: str | None = None, limit: int = 100) -> list[JobLine]:
    """Those in a state by its name: waiting ones in the order they are due, ended ones the last first. None: the newest first."""
    from ..ledger.queries import jobs as stored_jobs  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    with ledger.reading() as connection:
        return [_line(row) for row in stored_jobs.in_display_state(connection, state, kind=kind, limit=limit)]


def shown(ledger: Ledger, job_id: int, /) -> JobReport | None:
    """One of them; None: there is none of that number."""
    row = ledger.get(job_id)
    if row is None:
        return None
    letters = ledger.dead_letters(job_id=row.id, limit=1) if row.state == "dead" else []
    line = _line(row, letters[0].id if letters else row.dead_id)
    now = ledger.now()
    parked = _parked(ledger).get(row.kind)
    until = letters[0].blocked_until if letters else None
    return JobReport(
        job=line,
        says=_sentence(row, line, now, parked, until),
        payload=readable(row.payload),
        payload_bytes=len(row.payload),
        result=None if row.result is None else readable(row.result),
        headers=redact(row.headers),
        ids=redact(row.ids),
        tries=tuple(Try(*(getattr(one, name) for name in Try.__slots__)) for one in ledger.attempts(row.id)),
        now=now,
    )


def _parked(ledger: Ledger) -> Mapping[str, str]:
    from ..ledger.queries import overview  # noqa: PLC0415  # likewise

    with ledger.reading() as connection:
        return overview.parked_reasons(connection)


def _line(row: Job, dead_id: int | None = None) -> JobLine:
    fields = {name: getattr(row, name) for name in JobLine.__slots__ if name not in ("state", "dead_id")}
    return JobLine(state=row.shown, dead_id=row.dead_id if dead_id is None else dead_id, **fields)


def _sentence(row: Job, line: JobLine, now: datetime, parked: str | None, until: datetime | None) -> str:
    if row.state == "ready" and parked is not None:
        return f"queued; {row.kind} is paused after an outage ({parked})"
    replay = f'replay it with `redrive dead replay {line.dead_id} --because "..."`'
    match row.shown:
        case "queued" | "retry_wait" | "replaying" if row.state == "leased":
            return f"claimed by {row.worker}, about to start"
        case "queued" | "replaying" | "retry_wait":
            attempt = "next" if line.attempts else "first"
            return f"queued for its {attempt} attempt" + (", due now" if row.due_at <= now else "")
        case "running":
            return f"attempt {row.attempts} is running on {row.worker}"
        case "blocked":
            return f"blocked: {row.reason}; " + ("resumes automatically" if until else replay)
        case "dlq":
            return f"dead: {row.reason}; {replay}"
        case "discarded":
            return "discarded" if row.current else "replaced by a replay"
    return "done" if row.state == "done" else "done, and pruned"
