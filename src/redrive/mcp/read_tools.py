"""Tools that read a ledger. They change nothing, and show no secrets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import NotAllowed
from ..ops import JobFilter
from ..ops.dead_letters.model import DeadLetterFilter, Letter
from ..ops.jobs import JobLine
from ..ops.operator import Operator
from ..ops.partitions.selection import Standing, select_partitions
from .tool import (
    JobTypeName,
    NoArguments,
    OneArguments,
    PageArguments,
    Tool,
    ToolArguments,
    When,
    as_cursor,
    cursor_number,
    first_line,
    page_of,
    time_of,
)

Status = Literal["pending", "replaying", "replayed", "discarded", "all"]
SEARCH_HELP = (
    "Words such as type:receipts.send state:dead error:timeout since:2h key:shop:ann* user:ann. "
    "Names: id, key, user, correlation, type, state, error, since, until, worker, tenant, and tags"
)


class LetterSelection(ToolArguments):
    """Which dead letters."""

    kind: JobTypeName = None
    reason: Annotated[
        str | None, Field(description="Why the job died, such as attempts or not_retryable")
    ] = None
    error: Annotated[str | None, Field(description="Text in the error, or its signature")] = None
    source: Annotated[str | None, Field(description="Source of the messages; *: any")] = None
    since: When = None
    until: When = None
    search: Annotated[str | None, Field(description=SEARCH_HELP)] = None

    def to_filter(self, operator: Operator, /, **more: Any) -> DeadLetterFilter:
        """Return the filter of these dead letters."""
        return DeadLetterFilter(
            kind=self.kind,
            reason=self.reason,
            error=self.error,
            source=self.source,
            since=time_of(self.since),
            until=time_of(self.until),
            jobs=None if self.search is None else operator.jobs.parse(self.search),
            **more,
        )


class LetterListArguments(LetterSelection, PageArguments):
    """Which dead letters, and how many."""

    status: Status = "pending"


class FailureArguments(PageArguments):
    """Which failures."""

    kind: JobTypeName = None
    since: When = None
    until: When = None


class SearchArguments(PageArguments):
    """The words of a search."""

    search: Annotated[str, Field(min_length=1, max_length=2000, description=SEARCH_HELP)]


class JobListArguments(PageArguments):
    """Which jobs."""

    kind: JobTypeName = None
    state: Annotated[
        Literal["queued", "running", "retry_wait", "waiting", "done", "dlq", "blocked", "cancelled"]
        | None,
        Field(description="State. retry_wait: a retry is scheduled. dlq: dead letter"),
    ] = None


class ActivityArguments(ToolArguments):
    """Which time, and of what."""

    kind: Annotated[
        str | None, Field(description="Job type, or dataset such as crm/orders. Default: all")
    ] = None
    since: When = None
    until: When = None


class RecordArguments(PageArguments):
    """Which log records."""

    kind: JobTypeName = None
    since: When = None


class AuditArguments(PageArguments):
    """Which entries of the audit log."""

    actor: Annotated[str | None, Field(description="Who decided")] = None
    action: Annotated[str | None, Field(description="Action, such as dead.replay")] = None
    since: When = None


class PartitionSelection(ToolArguments):
    """Which partitions."""

    selection: Annotated[
        str | None,
        Field(
            description="crm, crm/orders, crm/acme/orders/2026-06-01 or a range "
            "crm/*/orders/2026-06-01..2026-06-30, where * is any"
        ),
    ] = None
    status: Annotated[
        Standing | None,
        Field(description="success: accepted. terminal: gave up. failed includes terminal"),
    ] = None

    def select(self) -> Any:
        """Return the filter of these partitions."""
        words = () if self.selection is None else (self.selection,)
        return select_partitions(words, status=self.status)


class PartitionListArguments(PartitionSelection, PageArguments):
    """Which partitions, and how many."""


class PartitionArguments(ToolArguments):
    """One partition."""

    key: Annotated[str, Field(description="source/customer/query/date")]


class SweepArguments(OneArguments):
    """One bulk operation."""

    cursor: Annotated[str | None, Field(description="next_cursor of the last result")] = None


def _letter(letter: Letter) -> dict[str, Any]:
    names = ("id", "kind", "key", "status", "reason", "attempts", "replay_count", "job_id")
    line = {name: getattr(letter, name) for name in names}
    return line | {"error": first_line(letter.error), "died_at": letter.died_at}


def _job(job: JobLine) -> dict[str, Any]:
    names = ("id", "kind", "key", "state", "attempts", "due_at", "created_at", "ended_at", "worker")
    line = {name: getattr(job, name) for name in names}
    return line | {"error": first_line(job.error), "dead_id": job.dead_id}


def letter_lines(operator: Operator, ids: tuple[int, ...], /) -> list[dict[str, Any]]:
    """Return dead letters by their ids, in a line each."""
    return [_letter(each) for each in operator.dead_letters.find(DeadLetterFilter(ids=ids))]


def job_lines(operator: Operator, ids: tuple[int, ...], /) -> list[dict[str, Any]]:
    """Return jobs by their ids, in a line each."""
    return [_job(each) for each in operator.jobs.find(JobFilter(ids=ids))]


def _list_letters(operator: Operator, given: LetterListArguments) -> dict[str, Any]:
    status = None if given.status == "all" else given.status
    which = given.to_filter(operator, limit=given.limit + 1)
    before = None if given.cursor is None else cursor_number(given.cursor)
    letters = operator.dead_letters.find(which, status=status, before=before)
    is_last = len(letters) <= given.limit
    letters = letters[: given.limit]
    return {
        "dead_letters": [_letter(letter) for letter in letters],
        "matching": operator.dead_letters.count(given.to_filter(operator), status=status),
        "next_cursor": None if is_last else as_cursor(letters[-1].id),
    }


def _show_letter(operator: Operator, given: OneArguments) -> dict[str, Any]:
    report = operator.dead_letters.get(given.id)
    if report is None:
        raise NotAllowed(
            f"dead letter {given.id} does not exist; list_dead_letters shows their ids"
        )
    return {"dead_letter": report}


def _show_job(operator: Operator, given: OneArguments) -> dict[str, Any]:
    report = operator.jobs.get(given.id)
    if report is None:
        raise NotAllowed(f"job {given.id} does not exist; find_jobs shows their ids")
    return {"job": report}


def _find(operator: Operator, given: SearchArguments) -> dict[str, Any]:
    letters: list[Letter] = []

    def read(most: int) -> list[dict[str, Any]]:
        result = operator.jobs.search(given.search, limit=most)
        letters.extend(result.letters if given.cursor is None else ())
        return [_job(job) for job in result.jobs]

    page = page_of("jobs", read, given)
    return page | {"dead_letters": [_letter(each) for each in letters[: given.limit]]}


def _list_jobs(operator: Operator, given: JobListArguments) -> dict[str, Any]:
    def read(most: int) -> list[dict[str, Any]]:
        jobs = operator.jobs.find(kind=given.kind, state=given.state, limit=most)
        return [_job(job) for job in jobs]

    return page_of("jobs", read, given)


def _failures(operator: Operator, given: FailureArguments) -> dict[str, Any]:
    times = {"since": time_of(given.since), "until": time_of(given.until)}

    def read(most: int) -> list[Any]:
        return operator.overview.failures(kind=given.kind, limit=most, **times)

    return page_of("failures", read, given)


def _groups(operator: Operator, given: LetterListArguments) -> dict[str, Any]:
    status = None if given.status == "all" else given.status
    which = given.to_filter(operator)
    return page_of("groups", lambda _: operator.dead_letters.groups(which, status=status), given)


def _activity(operator: Operator, given: ActivityArguments) -> dict[str, Any]:
    since, until = time_of(given.since), time_of(given.until)
    return {"activity": operator.overview.activity(kind=given.kind, since=since, until=until)}


def _records(operator: Operator, given: RecordArguments) -> dict[str, Any]:
    since = time_of(given.since)

    def read(most: int) -> list[Any]:
        return operator.overview.journal(kind=given.kind, since=since, limit=most)

    return page_of("records", read, given)


def _audit(operator: Operator, given: AuditArguments) -> dict[str, Any]:
    since = time_of(given.since)

    def read(most: int) -> list[Any]:
        return operator.audit.find(actor=given.actor, action=given.action, since=since, limit=most)

    return page_of("entries", read, given)


def _sweep(operator: Operator, given: SweepArguments) -> dict[str, Any]:
    after = -1 if given.cursor is None else cursor_number(given.cursor)
    report = operator.sweeps.get(given.id, after=after)
    if report is None:
        raise NotAllowed(f"bulk operation {given.id} does not exist; list_sweeps shows their ids")
    return {"sweep": report}


def _partitions(operator: Operator, given: PartitionListArguments) -> dict[str, Any]:
    after = cursor_number(given.cursor)
    found = operator.partitions.inspect(given.select(), after=after, limit=given.limit + 1)
    is_last = len(found) <= given.limit
    found = found[: given.limit]
    return {
        "partitions": found,
        "next_cursor": None if is_last else as_cursor(found[-1].id),
    }


def _explain(operator: Operator, given: PartitionArguments) -> dict[str, Any]:
    explained = operator.partitions.explain(given.key)
    return {"explained": explained, "history": operator.partitions.history(given.key)}


READ_TOOLS = (
    Tool(
        "overview",
        "Show the state of the app: problems with their start and fix, counts by job type, workers "
        "and queues. Begin here.",
        NoArguments,
        lambda operator, _: {"overview": operator.overview.summary()},
    ),
    Tool(
        "doctor",
        "Check the ledger and its workers for problems. Each one has a fix.",
        NoArguments,
        lambda operator, _: {"health": operator.health.check()},
    ),
    Tool(
        "list_dead_letters",
        "List jobs that failed for good (dead letters), newest first. `matching` counts all that "
        "match. show_dead_letter has the payload and every attempt.",
        LetterListArguments,
        _list_letters,
    ),
    Tool(
        "group_dead_letters",
        "Count dead letters by job type and cause, the largest group first.",
        LetterListArguments,
        _groups,
    ),
    Tool(
        "show_dead_letter",
        "Show one dead letter: payload without secrets, error, attempts and replays.",
        OneArguments,
        _show_letter,
    ),
    Tool(
        "list_failures",
        "List failures of jobs by cause, with their trend and an example. Includes failures that "
        "are still retried.",
        FailureArguments,
        _failures,
    ),
    Tool(
        "find_jobs",
        "Find jobs and dead letters by words, newest first.",
        SearchArguments,
        _find,
    ),
    Tool(
        "list_jobs",
        "List jobs of a type or in a state. Queued jobs are ordered by due time.",
        JobListArguments,
        _list_jobs,
    ),
    Tool(
        "show_job",
        "Show one job: state and next step in a sentence, payload without secrets, failed "
        "attempts, and its timeline of steps, sleeps and waits.",
        OneArguments,
        _show_job,
    ),
    Tool(
        "activity",
        "Show throughput, queue wait, run time and failures over time, in at most 90 points. "
        "Default: the last 24 hours.",
        ActivityArguments,
        _activity,
    ),
    Tool(
        "list_workers",
        "List workers with their current work.",
        NoArguments,
        lambda operator, _: {"workers": operator.workers.find()},
    ),
    Tool(
        "list_schedules",
        "List schedules with their next and last runs.",
        PageArguments,
        lambda operator, given: page_of(
            "schedules", lambda _: operator.overview.schedules(), given
        ),
    ),
    Tool(
        "list_controls",
        "List pauses by hand, and limits of job types.",
        NoArguments,
        lambda operator, _: {"pauses": operator.pauses.find(), "limits": operator.limits.find()},
    ),
    Tool(
        "list_sweeps",
        "List bulk operations (sweeps) on dead letters, jobs and partitions, newest first.",
        PageArguments,
        lambda operator, given: page_of(
            "sweeps", lambda most: operator.sweeps.find(limit=most), given
        ),
    ),
    Tool("show_sweep", "Show one bulk operation with its outcomes.", SweepArguments, _sweep),
    Tool(
        "list_partitions",
        "List partitions of datasets (the data of a customer and day) with their status.",
        PartitionListArguments,
        _partitions,
    ),
    Tool(
        "explain_partition",
        "Explain the status of one partition: why it is not running, and its attempts.",
        PartitionArguments,
        _explain,
    ),
    Tool(
        "list_log_records",
        "List log records of jobs, decisions and rejected partitions, newest first.",
        RecordArguments,
        _records,
    ),
    Tool(
        "list_audit_log",
        "List decisions of operators and policies, with who, when and why, newest first.",
        AuditArguments,
        _audit,
    ),
)
"""The tools that change nothing."""
