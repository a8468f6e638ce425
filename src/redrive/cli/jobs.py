"""`redrive jobs`: jobs of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ..core.amount import amount
from ..ops.document import document
from ..ops.jobs import JobLine, JobReport
from .fit import Column, fitted
from .followup import spelled
from .moments import ago, both
from .options import NOT_DONE, Actor, AsJson, Kind, Where, operator, option
from .output import complain, console, heading, pairs, print_json, show
from .shown import fields, indented, payload, tries

app = typer.Typer(no_args_is_help=True, help="Jobs: list them, look at one.")

State = Annotated[
    Literal["queued", "running", "retry_wait", "done", "blocked", "dlq", "replaying", "discarded"] | None,
    typer.Option("--state", help="Only in this state.", show_default=False),
]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]


@app.command("list")
def list_(state: State = None, kind: Kind = None, limit: Limit = 50, where: Where = None, as_json: AsJson = False) -> None:
    """List jobs: waiting ones in the order they are due, ended ones the last first; without --state the newest of all first.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found = ops.jobs(state=state, kind=kind, limit=limit)
        now = ops.now()
        sentence = ops.status().sentence
    if as_json:
        print_json(document(found))
        return
    out = console()
    if not found:
        show(out, Text(f"no such job: {sentence}" if state or kind else "nothing was submitted yet"))
        return
    show(out, _lines(found, now, out.width, full=len(found) == limit))


def _lines(found: Sequence[JobLine], now: datetime, width: int, *, full: bool) -> Group:
    columns = [
        Column("id", number=True),
        Column("kind", least=14),
        Column("state"),
        Column("tries", number=True, leave=3),
        Column("when"),
        Column("key", least=12, wants=24, cut=True, leave=2),
        Column("error", least=14, wants=24, cut=True, leave=1),
    ]
    rows = [
        {
            "id": str(one.id),
            "kind": one.kind,
            "state": one.state,
            "tries": str(one.attempts),
            "when": _when(one, now),
            "key": one.key,
            "error": _first_line(one.error),
        }
        for one in found
    ]
    hint = "More may match: raise --limit, or narrow it down." if full else spelled("`redrive jobs show ID` for one of them.")
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
    job_id: Annotated[int, typer.Argument(metavar="ID", help="The job's number.")],
    raw: Annotated[bool, typer.Option("--raw", help="Only its payload, with the secrets in it; needs --because.")] = False,
    because: Annotated[str | None, option("--because", "TEXT", "With --raw: why, for the audit.")] = None,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show one job: what it waits for, payload and headers without secrets, and every attempt that did not end well.

    With --raw its payload is shown as it is stored, and the audit has who wanted it and why.

    Exit status: 0, shown; 1, there is none of that number; 2, a wrong option; 3, the ledger cannot be reached or has another
    schema.
    """
    if raw != (because is not None):
        raise typer.BadParameter("go together: who sees secrets says why", param_hint="--raw, --because")
    with operator(where, actor) as ops:
        if because is not None:
            revealed = ops.reveal("job", job_id, because=because)
            print_json(document(revealed)) if as_json else show(console(), Text(revealed.text))
            return
        report = ops.job(job_id)
    if report is None:
        complain(f"there is no job {job_id}; `redrive jobs list` lists them")
        raise typer.Exit(NOT_DONE)
    if as_json:
        print_json(document(report))
        return
    show(console(), _report(report))


def _report(report: JobReport) -> Group:
    job, now = report.job, report.now
    first = pairs()
    first.add_row("kind", job.kind)
    first.add_row("key", job.key)
    first.add_row("state", job.state)
    first.add_row("", spelled(report.says))
    most = "" if job.max_attempts is None else f" of {job.max_attempts}"
    first.add_row("attempts", f"{job.attempts}{most}" + (f", {job.crashes} crashed" if job.crashes else ""))
    first.add_row("submitted", both(job.created_at, now))
    if job.ended_at is None:
        first.add_row("due", both(job.due_at, now))
    for name, moment in (("began", job.started_at), ("ended", job.ended_at), ("deadline", job.deadline)):
        if moment is not None:
            first.add_row(name, both(moment, now))
    if job.replay_of is not None:
        first.add_row("replay of", f"job {job.replay_of}")
    if job.dead_id is not None:
        first.add_row("dead letter", str(job.dead_id))
    if job.error:
        first.add_row("error", job.error)
    shown: list[RenderableType] = [heading(f"Job {job.id}"), indented(first)]
    shown += fields("Headers", report.headers) + fields("Correlation ids", report.ids)
    shown += payload(f"Payload, {amount(report.payload_bytes, 'byte')}", report.payload, report.payload_bytes)
    if report.result is not None:
        shown += payload("Result", report.result, 1)
    if report.tries:
        shown += ["", heading("Attempts that did not end well"), indented(tries(report.tries, report.now))]
    return Group(*shown)
