"""`redrive jobs`: list, show and change jobs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ...ops import JobFilter
from ...ops.dead_letters.model import DeadLetterFilter
from ...ops.jobs import JobLine, JobReport, TenantCount
from ...ops.render import ago, both
from ..command import CommandGroup
from ..errors import NOT_DONE, fail
from ..options import (
    JOB_STATES,
    Because,
    Kind,
    RawBecause,
    ReadOptions,
    WriteOptions,
    argument,
    flag,
    limit_option,
    open_operator,
    option,
    require_reason_for_raw,
    state_option,
)
from ..render import (
    Column,
    attempt_table,
    detail_view,
    first_line,
    named_values,
    payload_section,
    payload_text,
    print_json,
    print_result,
    print_rows,
    section,
    show,
    showing,
    state_name,
)
from ..suggestions import expand_commands
from ..unknown_names import unknown_kind
from . import job_changes

MAX_RESULT_CHARS = 200
"""Characters of a result in the table of steps."""

app = CommandGroup(help="List, cancel and reschedule jobs.")


@app.command("list")
def list_(
    *,
    state: Annotated[
        Literal[
            "queued",
            "running",
            "retry_wait",
            "done",
            "blocked",
            "dlq",
            "replaying",
            "discarded",
            "waiting",
            "cancelled",
        ]
        | None,
        state_option(
            "--state", JOB_STATES, "Only this state, or its name in JSON, such as dlq for dead"
        ),
    ] = None,
    kind: Kind = None,
    limit: Annotated[int, limit_option("jobs")] = 50,
    options: ReadOptions,
) -> None:
    """List jobs.

    Queued jobs are sorted by due time, ended jobs newest first. Without --state all jobs are
    listed, newest first.

    Examples:
        redrive jobs list
        redrive jobs list --state dead --kind crm.sync --limit 200

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        jobs = ops.jobs.find(JobFilter(state=state, kind=kind), limit=limit)
        now, status = ops.now(), ops.status()
        total = status.total(state, kind)
        if state == "discarded":  # The status counts jobs that a replay has replaced, too.
            total = ops.dead_letters.count(DeadLetterFilter(kind=kind), status="discarded")
        unknown = None if jobs else unknown_kind(ops, kind)
    hint = expand_commands("`redrive jobs show ID` shows one of them.")
    note = showing(limit, total) if len(jobs) == limit else hint
    no_match = unknown or f"No job matches. {status.sentence}."
    empty = no_match if state or kind else "No jobs."
    print_rows(jobs, options.as_json, _columns(now), empty=empty, below=[note])


def _columns(now: datetime) -> list[Column[JobLine]]:
    return [
        Column("id", lambda job: str(job.id), is_number=True),
        Column("job type", lambda job: job.kind, min_width=14),
        Column("state", lambda job: state_name(job.state)),
        Column("attempts", lambda job: str(job.attempts), is_number=True, drop_order=3),
        Column("time", lambda job: _when(job, now)),
        Column(
            "job key",
            lambda job: job.key,
            min_width=12,
            wanted_width=24,
            truncate=True,
            drop_order=2,
        ),
        Column("error", _error, min_width=14, wanted_width=24, truncate=True, drop_order=1),
    ]


def _error(job: JobLine) -> str | None:
    """Return the error of a job that is not done. A done job has one of an earlier attempt."""
    return None if job.state == "done" else first_line(job.error)


def _when(job: JobLine, now: datetime) -> str:
    if job.ended_at is not None:
        return f"ended {ago(job.ended_at, now)}"
    if job.state == "running":
        return f"started {ago(job.started_at, now)}"
    return f"due {ago(job.due_at, now)}"


@app.command("show")
def show_(
    *,
    job_id: Annotated[int, typer.Argument(metavar="ID", help="ID of the job")],
    raw: Annotated[
        bool, flag("--raw", "Only the stored payload, secrets included (needs --because)")
    ] = False,
    because: RawBecause = None,
    options: WriteOptions,
) -> None:
    """Show one job.

    Shows state, next step, payload, headers and every failed attempt. Secrets are hidden. With
    --raw only the stored payload is printed, secrets included, and the audit log records who read
    it and why.

    Examples:
        redrive jobs show 42
        redrive jobs show 42 --raw --because "INC-42"

    Exit codes:
        0: shown
        1: no job with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    require_reason_for_raw(raw, because)
    with open_operator(options, changes=raw) as ops:
        if because is not None:
            revealed = ops.jobs.reveal(job_id, because=because)
            print_json(revealed) if options.as_json else show(revealed.text)
            return
        report = ops.jobs.get(job_id)
    if report is None:
        fail(NOT_DONE, f"job {job_id}: not found; `redrive jobs list` lists jobs")
    print_result(report, options.as_json, _report)


@app.command()
def tenants(
    *,
    kind: Annotated[str, argument("KIND", "Job type")],
    limit: Annotated[int, limit_option("tenants")] = 50,
    options: ReadOptions,
) -> None:
    """Count queued and running jobs by tenant.

    Tenants with the most queued jobs come first. If more than 5,000 jobs are queued, only the
    1,000 that are due first are counted.

    Examples:
        redrive jobs tenants mail.send
        redrive jobs tenants mail.send --limit 10 --json

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        report = ops.jobs.tenants(kind, limit=limit)
        unknown = None if report.tenants else unknown_kind(ops, kind)
    if options.as_json:
        print_json(report)
        return
    cut = "More than 5,000 jobs are queued. Only the 1,000 that are due first are counted."
    below = [cut] if report.is_cut else []
    empty = unknown or f"No queued or running job of {kind} has a tenant."
    columns: list[Column[TenantCount]] = [
        Column("tenant", lambda row: row.tenant, min_width=14),
        Column("queued", lambda row: f"{row.queued:,}", is_number=True),
        Column("running", lambda row: f"{row.running:,}", is_number=True),
    ]
    print_rows(report.tenants, False, columns, empty=empty, below=below)


app.command()(job_changes.cancel)
app.command("run-now")(job_changes.run_now)
app.command()(job_changes.reschedule)
app.command()(job_changes.prioritise)


@app.command("signal")
def signal_(
    *,
    job_id: Annotated[int, typer.Argument(metavar="ID", help="ID of the job")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal")],
    payload: Annotated[
        str | None, option("--payload", "JSON", "Value that the job gets (default: null)")
    ] = None,
    because: Because,
    options: WriteOptions,
) -> None:
    """Send a signal to a job.

    A job that waits for the signal continues at once. Otherwise the signal is stored until the
    job waits for it. A dead letter keeps it for its replay.

    Examples:
        redrive jobs signal 42 approved --because "INC-42: approved by phone"
        redrive jobs signal 42 approved --payload '{"by": "ann"}' --because "INC-42"

    Exit codes:
        0: sent
        1: no job with this ID, the job has ended, or the signal was sent before
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    try:
        value = None if payload is None else json.loads(payload)
    except ValueError:
        raise typer.BadParameter(
            f"invalid JSON {str(payload)[:60]!r}; nothing was changed", param_hint="--payload"
        ) from None
    with open_operator(options) as ops:
        sent = ops.jobs.signal(job_id, name, value, because=because)
        report = ops.jobs.get(job_id)
    if not sent.stored:
        fail(NOT_DONE, f"signal {name!r}: was sent to job {job_id} before; nothing was changed")
    after = " It is a dead letter: its replay gets the signal." if sent.is_dead else ""
    waits_for = None if report is None else report.waits_for
    if waits_for and waits_for != name:
        after += f" It waits for another signal: {waits_for!r}."
    print_result(sent, options.as_json, lambda _: f"Signal {name!r} sent to job {job_id}.{after}")


def _state_lines(report: JobReport) -> list[str]:
    """Return the state, and the next step if it says more."""
    state, says = state_name(report.job.state), expand_commands(report.says)
    if report.is_replaced:
        return [says]  # The stored state is that of a discarded job.
    return [state, *([says] if says != state else [])]


def _report(report: JobReport) -> Group:
    job, now = report.job, report.now
    limit = "" if job.max_attempts is None else f" of {job.max_attempts}"
    crashes = f", {job.crashes} crashed" if job.crashes else ""
    sections = [
        *named_values("Headers", report.headers),
        *named_values("Correlation ids", report.ids),
        *payload_section(report.payload, report.payload_bytes),
    ]
    if report.result is not None:
        sections += section("Result", payload_text(report.result))
    if report.steps:
        sections += section("Steps", _step_table(report, now))
    if report.progress is not None and report.progress.checkpoint_at is not None:
        sections += section("Checkpoint", payload_text(report.progress.checkpoint))
    if report.tries:
        sections += section("Failed attempts", attempt_table(report.tries, now))
    return detail_view(
        f"Job {job.id}",
        {
            "job type": job.kind,
            "job key": job.key,
            "tenant": job.tenant,
            "sequence": job.sequence,
            "tags": [f"{name}: {value}" for name, value in report.tags.items()] or None,
            "priority": str(job.priority),
            "state": _state_lines(report),
            "cancelled": _describe_cancel(report, now),
            "attempts": f"{job.attempts}{limit}{crashes}",
            "submitted": both(job.created_at, now),
            "due": both(job.due_at, now) if job.ended_at is None else None,
            "started": both(job.started_at, now) if job.started_at else None,
            "ended": both(job.ended_at, now) if job.ended_at else None,
            "progress": _progress(report, now),
            "deadline": both(job.deadline, now) if job.deadline else None,
            "replay of": None if job.replay_of is None else f"job {job.replay_of}",
            "dead letter": None if job.dead_id is None else str(job.dead_id),
            "last failed attempt" if job.state == "done" else "error": job.error or None,
        },
        *sections,
    )


def _describe_cancel(report: JobReport, now: datetime) -> str | None:
    entry = report.cancelled_by
    if entry is None:
        return None
    return f"by {entry.actor} {ago(entry.at, now)}: {entry.because}"


def _progress(report: JobReport, now: datetime) -> str | None:
    progress = report.progress
    if progress is None or progress.percent is None or report.job.ended_at is not None:
        return None
    note = "" if progress.note is None else f", {progress.note}"
    return f"{progress.percent}{note} ({ago(progress.updated_at, now)})"


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.001 else "< 1 ms"


def _step_table(report: JobReport, now: datetime) -> Table:
    """Return the steps, sleeps and waits of a job as a table."""
    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in ("step", "state", "attempts", "started", "took", "result or error"):
        table.add_column(name, overflow="fold")
    for step in report.steps:
        took = "" if step.seconds is None else _duration(step.seconds)
        if step.seconds is None and step.wake_at is not None:
            took = f"ends {ago(step.wake_at, now)}"
        result = "" if step.result is None else json.dumps(step.result, ensure_ascii=False)
        table.add_row(
            Text(step.name if step.act == "step" else f"{step.act} {step.name}"),
            step.state,
            str(step.attempts or ""),
            ago(step.started_at, now),
            took,
            Text(step.error or result[:MAX_RESULT_CHARS]),
        )
    return table
