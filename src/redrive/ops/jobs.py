"""Operations on jobs: find them, and show everything that is known of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import NotAllowed
from ..journal.redaction import redact
from ..ledger.ledger import Ledger
from ..ledger.model import DisplayState, Job, Tally
from ..ledger.queries import jobs as queries
from ..ledger.queries import overview
from .context import MAX_CHAIN_JOBS, OperatorContext, check_reason
from .dead_letters.model import REPLAY_NOTES, Revealed, Try, failed_attempts, readable, reveal
from .render import describe_probe


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list."""

    id: int
    kind: str
    key: str
    state: str
    """State as it is shown."""
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
    """Id of the dead letter that it replays, or that it became."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """Everything that is known of a job, without secrets."""

    job: JobLine
    says: str
    """The state and the next step, in a sentence. Commands are in backticks."""
    payload: Any
    """The payload as JSON or text. None: it is neither."""
    payload_bytes: int
    result: Any
    headers: Mapping[str, str]
    ids: Mapping[str, str]
    """Correlation ids."""
    tries: tuple[Try, ...]
    """Attempts that did not succeed."""
    now: datetime
    replaced_by: int | None = None
    """Id of the newest job that replays this one. None: not replaced, or not known."""
    is_replaced: bool = False
    """Whether a replay has taken its place. Its stored state is that of a discarded job."""


@dataclass(frozen=True, slots=True)
class JobOperations:
    """Operations on jobs, as `Operator.jobs`. Threads may share one."""

    _context: OperatorContext

    def find(
        self, *, state: DisplayState | None = None, kind: str | None = None, limit: int = 100
    ) -> list[JobLine]:
        """Return jobs. Queued ones are ordered by due time, ended ones by end, newest first.

        Args:
            state: State as shown, such as `"queued"`. None: all, newest first.
            kind: Job type.
            limit: Maximum number.

        Returns:
            The jobs.
        """
        with self._context.ledger.reading() as connection:
            return [
                _line(job)
                for job in queries.in_display_state(connection, state, kind=kind, limit=limit)
            ]

    def get(self, job_id: int, /) -> JobReport | None:
        """Return everything that is known about a job.

        Args:
            job_id: Id of the job.

        Returns:
            The report, or None.
        """
        ledger = self._context.ledger
        job = ledger.get(job_id)
        if job is None:
            return None
        letters = ledger.dead_letters(job_id=job.id, limit=1) if job.state == "dead" else []
        letter = letters[0] if letters else None
        line = _line(job, None if letter is None else letter.id)
        with ledger.reading() as connection:
            parked = overview.parked_reasons(connection).get(job.kind)
            probe_at = None if parked is None else overview.probe_times(connection).get(job.kind)
        now, replaced_by = ledger.now(), _replacement(ledger, job)
        if parked is not None:
            parked = f"paused after an outage ({parked}){describe_probe(probe_at, now)}"
        return JobReport(
            job=line,
            says=_describe(job, line, now, parked, None if letter is None else letter.blocked_until)
            + ("" if replaced_by is None else f", job {replaced_by}"),
            payload=readable(job.payload),
            payload_bytes=len(job.payload),
            result=None if job.result is None else readable(job.result),
            headers=redact(job.headers),
            ids=redact(job.ids),
            tries=failed_attempts(ledger.attempts(job.id)),
            now=now,
            replaced_by=replaced_by,
            is_replaced=job.state == "dropped" and not job.current,
        )

    def reveal(self, job_id: int, /, *, because: str) -> Revealed:
        """Return the payload of a job with its secrets. This is recorded in the audit log.

        Args:
            job_id: Id of the job.
            because: Why, for the audit log.

        Returns:
            The payload.

        Raises:
            NotAllowed: There is no such job.
        """
        check_reason(because)
        job = self._context.ledger.get(job_id)
        if job is None:
            raise NotAllowed(f"job {job_id} not found")
        details = {"job": job_id, "bytes": len(job.payload)}
        self._context.record("payload.reveal", because, details)
        return reveal(job.payload)

    def counts(self) -> dict[str, Tally]:
        """Return the number of jobs of each job type, by state.

        Returns:
            A tally for each job type.
        """
        return self._context.ledger.counts()


def _line(job: Job, dead_id: int | None = None) -> JobLine:
    names = [name for name in JobLine.__slots__ if name not in ("state", "dead_id")]
    fields = {name: getattr(job, name) for name in names}
    return JobLine(state=job.shown, dead_id=job.dead_id if dead_id is None else dead_id, **fields)


def _replacement(ledger: Ledger, job: Job) -> int | None:
    """Return the newest job that replays a replaced one. Read from the current job backwards."""
    is_replaced = job.state == "dropped" and not job.current
    newest = earlier = ledger.find(job.kind, job.key) if is_replaced else None
    for _ in range(MAX_CHAIN_JOBS):
        if newest is None or earlier is None or earlier.replay_of is None:
            return None
        if earlier.replay_of == job.id:
            return newest.id
        earlier = ledger.get(earlier.replay_of)
    return None


def _describe(
    job: Job, line: JobLine, now: datetime, parked: str | None, until: datetime | None
) -> str:
    if job.state == "ready" and parked is not None:
        state = "retry scheduled" if line.state == "retry_wait" else "queued"
        return f"{state}; {job.kind} is {parked}"
    replay = f'replay it with `redrive dead replay {line.dead_id} --because "..."`'
    note = REPLAY_NOTES.get(job.reason or "")
    if note is not None:
        replay = f"{note}; see `redrive dead show {line.dead_id}`"
    match job.shown:
        case "queued" | "retry_wait" | "replaying" if job.state == "leased":
            return f"claimed by {job.worker}, about to start"
        case "queued" | "replaying" | "retry_wait":
            # A failure in an outage does not count as an attempt.
            attempt = "next" if line.attempts or line.state == "retry_wait" else "first"
            due = ", due now" if job.due_at <= now else ""
            return f"queued for its {attempt} attempt{due}"
        case "running":
            return f"attempt {job.attempts} is running on {job.worker}"
        case "blocked":
            return f"blocked: {job.reason}; " + ("resumes automatically" if until else replay)
        case "dlq":
            return f"dead: {job.reason}; {replay}"
        case "discarded":
            return "discarded" if job.current else "replaced by a replay"
    return "done" if job.state == "done" else "done, and pruned"
