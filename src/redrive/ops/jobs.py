"""Operations on jobs: find them, and show everything that is known of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ..commands.signals import signal_payload
from ..errors import NotAllowed
from ..journal.redaction import redact
from ..ledger.filters import JobFilter
from ..ledger.jobs.job_changes import check_priority
from ..ledger.jobs.pauses import read_pauses
from ..ledger.jobs.tenants import TenantCount, tenant_counts
from ..ledger.ledger import Ledger
from ..ledger.model import DisplayState, Job, Tally
from ..ledger.queries import job_search, overview
from ..ledger.store.signals import SentSignal
from ..ledger.sweep import JobChange
from .audit import AuditOperations, Decision
from .context import MAX_CHAIN_JOBS, OperatorContext, check_reason
from .controls.model import describe_pause
from .dead_letters.model import (
    REPLAY_NOTES,
    Letter,
    Revealed,
    Try,
    failed_attempts,
    readable,
    reveal,
)
from .dead_letters.operations import DeadLetterOperations
from .plans.job_changes import plan_change
from .plans.plan import Plan
from .render import describe_probe, utc
from .search import LETTER_STATES, letters_of, parse_search
from .timeline import JobProgress, StepLine, progress_report, send_signal, timeline

__all__ = ["JobLine", "JobOperations", "JobReport", "SearchResult", "TenantCount", "TenantReport"]

CANCEL_MARGIN = timedelta(seconds=1)
MAX_CANCELS = 100
MAX_PAST = timedelta(seconds=60)
"""How far a new due time may be in the past, because the clocks of clients differ."""
"""Entries of the audit log that are searched for the cancellation of a job."""


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
    tenant: str | None = None
    sequence: str | None = None
    """Jobs of one sequence run one after another."""


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
    steps: tuple[StepLine, ...] = ()
    """Steps, sleeps and waits, in the order of their start."""
    waits_for: str | None = None
    """Name of the signal that it waits for. An empty text: it sleeps."""
    progress: JobProgress | None = None
    """What the job reported, and its checkpoint."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Declared tags, by name."""
    cancelled_by: Decision | None = None
    """Who cancelled it and why, from the audit log. None: not cancelled, or not known."""


@dataclass(frozen=True, slots=True)
class TenantReport:
    """The tenants of a job type, those with the most queued jobs first."""

    kind: str
    tenants: tuple[TenantCount, ...]
    is_cut: bool
    """Whether more than 5,000 jobs are queued, and only the 1,000 that are due first were
    counted."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The jobs and dead letters that a search found, newest first."""

    text: str
    jobs: tuple[JobLine, ...]
    letters: tuple[Letter, ...]
    is_cut: bool
    """Whether there may be more. A narrower search shows them."""
    now: datetime


@dataclass(frozen=True, slots=True)
class JobOperations:
    """Operations on jobs, as `Operator.jobs`. Threads may share one."""

    _context: OperatorContext

    def find(
        self,
        wanted: JobFilter | None = None,
        /,
        *,
        state: DisplayState | None = None,
        kind: str | None = None,
        limit: int = 100,
    ) -> list[JobLine]:
        """Return jobs. Queued ones are ordered by due time, ended ones by end, newest first.

        Args:
            wanted: Which jobs. Default: all.
            state: State as shown, such as `"queued"`. None: all, newest first.
            kind: Job type.
            limit: Maximum number.

        Returns:
            The jobs.
        """
        wanted = _narrow(wanted, state, kind)
        with self._context.ledger.reading() as connection:
            return [_line(job) for job in job_search.find(connection, wanted, limit=limit).jobs]

    def count(self, wanted: JobFilter | None = None, /, *, most: int = job_search.MAX_COUNT) -> int:
        """Count jobs, up to a number.

        Args:
            wanted: Which jobs. Default: all.
            most: Jobs above this number are not counted.

        Returns:
            The number of jobs, at most `most`.
        """
        with self._context.ledger.reading() as connection:
            return job_search.count(connection, wanted or JobFilter(), most=most)

    def search(self, text: str, /, *, limit: int = 100) -> SearchResult:
        """Find jobs and dead letters by words, such as `type:crm.sync state:dead since:2h`.

        Args:
            text: The words, see `redrive jobs find --help`.
            limit: Maximum number of jobs, and of dead letters.

        Returns:
            The jobs and the dead letters, newest first.

        Raises:
            ValueError: A word is unknown, or its value is not valid.
        """
        wanted = self.parse(text)
        result = self._search(text, wanted, limit)
        is_bare_id = wanted == JobFilter(ids=wanted.ids) and text.strip().isdigit()
        if result.jobs or result.letters or not is_bare_id:
            return result
        return self._search(text, JobFilter(text=text.strip()), limit)

    def parse(self, text: str, /) -> JobFilter:
        """Return the filter that the words of a search mean.

        Args:
            text: The words.

        Returns:
            The filter.

        Raises:
            ValueError: A word is unknown, or its value is not valid.
        """
        return parse_search(text, tags=self.tag_names())

    def tag_names(self) -> list[str]:
        """Return the names of the tags that jobs have.

        Returns:
            The names.
        """
        with self._context.ledger.reading() as connection:
            return list(job_search.tag_names(connection))

    def _search(self, text: str, wanted: JobFilter, limit: int) -> SearchResult:
        with self._context.ledger.reading() as connection:
            page = job_search.find(connection, wanted, limit=limit)
        letters: list[Letter] = []
        if wanted.state in LETTER_STATES and not wanted.selects_all:
            operations = DeadLetterOperations(self._context)
            letters = operations.find(letters_of(wanted, limit=limit), status=None)
        is_cut = page.is_cut or len(letters) == limit
        jobs = tuple(map(_line, page.jobs))
        return SearchResult(text, jobs, tuple(letters), is_cut, self._context.ledger.now())

    def cancel(self, wanted: JobFilter, /, *, limit: int | None = None) -> Plan:
        """Plan to cancel jobs. `Operator.apply` does it.

        Args:
            wanted: Which jobs. Jobs that have ended are left out.
            limit: Maximum number. None: no limit.

        Returns:
            The plan.

        Raises:
            NotAllowed: The filter selects all jobs.
        """
        return self._plan(JobChange("cancel"), wanted, limit)

    def run_now(self, wanted: JobFilter, /, *, limit: int | None = None) -> Plan:
        """Plan to make queued jobs due now. `Operator.apply` does it.

        Args:
            wanted: Which jobs. Jobs that are due, run or have ended are left out.
            limit: Maximum number. None: no limit.

        Returns:
            The plan.

        Raises:
            NotAllowed: The filter selects all jobs.
        """
        return self._plan(JobChange("run_now"), wanted, limit)

    def reschedule(self, wanted: JobFilter, due: datetime, /, *, limit: int | None = None) -> Plan:
        """Plan to change when queued jobs are due. `Operator.apply` does it.

        Args:
            wanted: Which jobs. Jobs that run or have ended are left out.
            due: The new time, with a time zone. At most 60 s ago, for clocks that differ.
            limit: Maximum number. None: no limit.

        Returns:
            The plan.

        Raises:
            NotAllowed: The filter selects all jobs.
            ValueError: The time has no time zone, or has passed.
        """
        if due.tzinfo is None:
            raise ValueError(f"a datetime needs a time zone: {due!r}")
        if due < self._context.ledger.now() - MAX_PAST:
            raise ValueError(
                f"{utc(due)} UTC has passed; use a time to come, or run the jobs now; "
                "nothing was changed"
            )
        change = JobChange("reschedule", due=due)
        return self._plan(change, wanted, limit)

    def prioritise(self, wanted: JobFilter, priority: int, /, *, limit: int | None = None) -> Plan:
        """Plan to change the priority of queued jobs. `Operator.apply` does it.

        Args:
            wanted: Which jobs. Jobs that run or have ended are left out.
            priority: From -2 (first) to 2 (last).
            limit: Maximum number. None: no limit.

        Returns:
            The plan.

        Raises:
            NotAllowed: The filter selects all jobs.
            ValueError: There is no such priority.
        """
        check_priority(priority)
        change = JobChange("prioritise", priority=priority)
        return self._plan(change, wanted, limit)

    def _plan(self, change: JobChange, wanted: JobFilter, limit: int | None) -> Plan:
        self._context.require(change.act)
        return self._context.require_plan(
            plan_change(self._context.ledger, change, wanted, limit=limit)
        )

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
        self._context.open_payload("job", job_id, job.kind)
        letters = ledger.dead_letters(job_id=job.id, limit=1) if job.state == "dead" else []
        letter = letters[0] if letters else None
        line = _line(job, None if letter is None else letter.id)
        now = ledger.now()  # first: a ledger in memory has one connection
        with ledger.reading() as connection:
            pause = read_pauses(connection, now).get("job type", job.kind)
            parked = overview.parked_reasons(connection).get(job.kind)
            probe_at = None if parked is None else overview.probe_times(connection).get(job.kind)
            steps = timeline(connection, job.id, now)
            progress = progress_report(connection, job.id)
            tags = job_search.tags_of(connection, job.id)
        replaced_by = _replacement(ledger, job)
        if parked is not None:
            parked = f"{job.kind} is paused after an outage ({parked})"
            parked += describe_probe(probe_at, now)
        if pause is not None:
            subject = "the app" if pause.scope == "app" else job.kind
            by_hand = f"{subject} is {describe_pause(pause)}"
            parked = by_hand if parked is None else f"{by_hand}; {parked}"
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
            steps=steps,
            waits_for=job.waits_for if job.state == "ready" else None,
            progress=progress,
            tags=redact(tags),
            cancelled_by=self._read_cancel(job),
        )

    def _read_cancel(self, job: Job) -> Decision | None:
        """Return the newest entry of the audit log that cancelled a job."""
        if job.cancel_at is None:
            return None
        entries = AuditOperations(self._context).find(
            action="job.cancel",
            since=job.created_at,
            until=job.cancel_at + CANCEL_MARGIN,
            limit=MAX_CANCELS,
        )
        sweeps = [entry.what["sweep"] for entry in entries if "sweep" in entry.what]
        with self._context.ledger.reading() as connection:
            of_job = job_search.sweeps_of(connection, job.id, sweeps)
        for entry in entries:
            jobs = entry.what.get("jobs")
            direct = jobs if "sweep" not in entry.what and isinstance(jobs, Mapping) else {}
            if entry.what.get("sweep") in of_job or str(job.id) in direct:
                return entry
        return None

    def signal(self, job_id: int, name: str, payload: Any = None, /, *, because: str) -> SentSignal:
        """Send a signal to a job that waits, or will wait, for it.

        Args:
            job_id: Id of the job.
            name: Name of the signal.
            payload: Value that `wait_for` returns: text, numbers, lists or dicts.
            because: Why, for the audit log.

        Returns:
            Whether the signal is new, and whether the job is a dead letter.

        Raises:
            NotAllowed: There is no such job, or it has ended. Nothing was changed.
            TypeError: The payload cannot be stored.
        """
        stored = signal_payload(name, payload)
        self._context.require("signal")
        if self._context.rights is not None and (job := self._context.ledger.get(job_id)):
            self._context.require("signal", job.kind)
        return send_signal(self._context, job_id, name, stored, because)

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
        self._context.require("reveal")
        job = self._context.ledger.get(job_id)
        if job is None:
            raise NotAllowed(f"job {job_id} not found")
        self._context.require("reveal", job.kind)
        details = {"job": job_id, "bytes": len(job.payload)}
        self._context.record("payload.reveal", because, details)
        return reveal(job.payload)

    def tenants(self, kind: str, /, *, limit: int = 50) -> TenantReport:
        """Count the queued and running jobs of each tenant of a job type.

        Args:
            kind: Job type.
            limit: Maximum number of tenants.

        Returns:
            The tenants, those with the most queued jobs first.
        """
        with self._context.ledger.reading() as connection:
            counts = tenant_counts(connection, kind, limit=limit)
        return TenantReport(kind, tuple(counts.tenants), counts.is_cut)

    def counts(self) -> dict[str, Tally]:
        """Return the number of jobs of each job type, by state.

        Returns:
            A tally for each job type.
        """
        return self._context.ledger.counts()


def _narrow(wanted: JobFilter | None, state: DisplayState | None, kind: str | None) -> JobFilter:
    """Return the filter with a state and a job type that are passed beside it."""
    also: dict[str, Any] = {"state": state, "kind": kind}
    named = {name: value for name, value in also.items() if value is not None}
    return replace(wanted or JobFilter(), **named)


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
        return f"{state}; {parked}"
    if job.state == "held":
        return f"queued behind an earlier job of the sequence {job.sequence!r}"
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
        case "waiting" if job.waits_for:
            return f"waits for the signal {job.waits_for!r}, at most until {utc(job.due_at)} UTC"
        case "waiting":
            return f"sleeps until {utc(job.due_at)} UTC"
        case "running":
            stops = "; it was cancelled and is asked to stop" if job.cancel_at is not None else ""
            return f"attempt {job.attempts} is running on {job.worker}{stops}"
        case "cancelled":
            return "cancelled; its job key is free for a new job"
        case "blocked":
            return f"blocked: {job.reason}; " + ("resumes automatically" if until else replay)
        case "dlq":
            return f"dead: {job.reason}; {replay}"
        case "discarded":
            return "discarded" if job.current else "replaced by a replay"
    if job.state == "done" and job.cancel_at is not None:
        return "done: it ended successfully after it was asked to stop"
    return "done" if job.state == "done" else "done, and pruned"
