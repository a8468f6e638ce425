"""`redrive jobs`: jobs of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.jobs import JobLine, JobReport
from ...ops.render import document
from ..choices import JOB, state_option
from ..command import Commands
from ..options import NOT_DONE, Actor, AsJson, BecauseRaw, Kind, Where, operator
from ..render.details import fields, indented, payload, showing, state_name, tries
from ..render.moments import ago, both
from ..render.output import complain, console, heading, pairs, print_json, show
from ..render.suggestions import spelled
from ..render.table import Column, fitted

app = Commands(help="List and show jobs.")

State = Annotated[
    Literal["queued", "running", "retry_wait", "done", "blocked", "dlq", "replaying", "discarded"] | None,
    state_option("--state", JOB, "Only this state, or its name in JSON, such as dlq for dead"),
]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of jobs")]


@app.command("list")
def list_(state: State = None, kind: Kind = None, limit: Limit = 50, where: Where = None, as_json: AsJson = False) -> None:
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
    with operator(where) as ops:
        found = ops.jobs.find(state=state, kind=kind, limit=limit)
        now = ops.now()
        status = ops.status()
    if as_json:
        print_json(document(found))
        return
    out = console()
    if not found:
        show(out, Text(f"No job matches. {status.sentence}." if state or kind else "No jobs."))
        return
    total = status.total(state, kind)
    show(out, _lines(found, now, out.width, showing(len(found), total) if len(found) == limit else None))


def _lines(found: Sequence[JobLine], now: datetime, width: int, more: str | None) -> Group:
    columns = [
        Column("id", number=True),
        Column("job type", least=14),
        Column("state"),
        Column("attempts", number=True, leave=3),
        Column("when"),
        Column("job key", least=12, wants=24, cut=True, leave=2),
        Column("error", least=14, wants=24, cut=True, leave=1),
    ]
    rows = [
        {
            "id": str(one.id),
            "job type": one.kind,
            "state": state_name(one.state),
            "attempts": str(one.attempts),
            "when": _when(one, now),
            "job key": one.key,
            "error": _first_line(one.error),
        }
        for one in found
    ]
    hint = more or spelled("`redrive jobs show ID` shows one of them.")
    return Group(fitted(columns, rows, width), "", Text(hint, style="dim"))


def _when(one: JobLine, now: datetime) -> str:
    if one.ended_at is not None:
        return f"ended {ago(one.ended_at, now)}"
    if one.state == "running":
        return f"since {ago(one.started_at, now)}"
    return f"due {ago(one.due_at, now)}"


def _first_line(text: str | None) -> str:
    return "–" if not text else text.partition("\n")[0]


@app.command("show")
def show_(
    job_id: Annotated[int, typer.Argument(metavar="ID", help="ID of the job")],
    raw: Annotated[bool, typer.Option("--raw", help="Only the stored payload, secrets included (needs --because)")] = False,
    because: BecauseRaw = None,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
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
    if raw != (because is not None):
        raise typer.BadParameter("pass both or neither", param_hint="--raw, --because")
    with operator(where, actor) as ops:
        if because is not None:
            revealed = ops.jobs.reveal(job_id, because=because)
            print_json(document(revealed)) if as_json else show(console(), Text(revealed.text))
            return
        report = ops.jobs.get(job_id)
    if report is None:
        complain(f"job {job_id}: not found; `redrive jobs list` lists jobs")
        raise typer.Exit(NOT_DONE)
    if as_json:
        print_json(document(report))
        return
    show(console(), _report(report))


def _report(report: JobReport) -> Group:
    job, now = report.job, report.now
    first = pairs()
    first.add_row("job type", job.kind)
    first.add_row("job key", job.key)
    first.add_row("state", state_name(job.state))
    if report.says != state_name(job.state):
        first.add_row("", spelled(report.says))
    most = "" if job.max_attempts is None else f" of {job.max_attempts}"
    first.add_row("attempts", f"{job.attempts}{most}" + (f", {job.crashes} crashed" if job.crashes else ""))
    first.add_row("submitted", both(job.created_at, now))
    if job.ended_at is None:
        first.add_row("due", both(job.due_at, now))
    for name, moment in (("started", job.started_at), ("ended", job.ended_at), ("deadline", job.deadline)):
        if moment is not None:
            first.add_row(name, both(moment, now))
    if job.replay_of is not None:
        first.add_row("replay of", f"job {job.replay_of}")
    if job.dead_id is not None:
        first.add_row("dead letter", str(job.dead_id))
    if job.error:
        first.add_row("last failed attempt" if job.state == "done" else "error", job.error)
    shown: list[RenderableType] = [heading(f"Job {job.id}"), indented(first)]
    shown += fields("Headers", report.headers) + fields("Correlation ids", report.ids)
    shown += payload(f"Payload, {pluralise(report.payload_bytes, 'byte')}", report.payload, report.payload_bytes)
    if report.result is not None:
        shown += payload("Result", report.result, 1)
    if report.tries:
        shown += ["", heading("Failed attempts"), indented(tries(report.tries, report.now))]
    return Group(*shown)
