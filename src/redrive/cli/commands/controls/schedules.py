"""`redrive schedules`: list the schedules of commands and datasets, and fire one now."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from rich.text import Text

from ....core.text import format_duration
from ....ops.overview.schedules import Schedule
from ....ops.render import ago
from ...command import CommandGroup
from ...options import Because, ReadOptions, WriteOptions, argument, open_operator
from ...render import Column, print_result, print_rows, show, state_name, suggestion

app = CommandGroup(help="List and fire schedules.")
ScheduleName = Annotated[
    str, argument("NAME", "Job type of the command, or name of the dataset such as crm/orders")
]


@app.command("list")
def list_(*, options: ReadOptions) -> None:
    """List schedules.

    Shows the next run, the last run and missed runs of commands and datasets with cron=. A command
    is listed after a worker has stored its first run, a dataset after a worker has seen it. With
    --ledger module:app, all datasets of the app are listed.

    Examples:
        redrive schedules list
        redrive schedules list --ledger shop:app
        redrive schedules list --json

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        schedules, now = ops.overview.schedules(), ops.now()
        has_datasets = any(schedule.of == "dataset" for schedule in schedules)
        has_worker = has_datasets and ops.workers.missing() is None
    print_rows(schedules, options.as_json, _columns(now, has_worker), empty="No schedules.")


@app.command()
def fire(*, name: ScheduleName, because: Because, options: WriteOptions) -> None:
    """Start a run of a schedule now.

    The planned runs stay as they are. It also works while the schedule is paused. The run of a
    dataset is for yesterday, in the time zone of the schedule, and needs --ledger module:app.

    Examples:
        redrive schedules fire nightly.report --because "INC-42, report was empty"
        redrive schedules fire crm/orders --ledger shop:app --because "CRM is back"

    Exit codes:
        0: started
        1: unknown schedule, or only its app can start it
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        run = ops.schedules.fire(name, because=because)
    of = f"job {run.job_id}" if run.sweep_id is None else f"sweep {run.sweep_id}"
    command = (
        f"redrive jobs show {run.job_id}"
        if run.sweep_id is None
        else f"redrive backfill status {run.sweep_id}"
    )
    print_result(run, options.as_json, lambda _run: f"Fired {name}: {of}")
    if not options.as_json:
        show(suggestion(command))


def _columns(now: datetime, has_worker: bool) -> list[Column[Schedule]]:
    return [
        Column("name", lambda schedule: schedule.kind, min_width=14),
        Column("schedule", lambda schedule: schedule.line or None, drop_order=1),
        Column("next", lambda schedule: _next(schedule, now, has_worker)),
        Column("last", lambda schedule: ago(schedule.last_at, now)),
        Column("last state", _state),
        Column("missed", _missed_runs, is_number=True),
        Column("id", _run, is_number=True, drop_order=2),
    ]


def _next(schedule: Schedule, now: datetime, has_worker: bool) -> Text:
    if schedule.paused is not None:
        return Text(schedule.paused, style="yellow")
    if schedule.late_since is not None:
        late = round((now - schedule.late_since).total_seconds())
        return Text(f"late, {format_duration(late)}", style="bold red")
    if schedule.next_at is None:
        return Text("no worker online", style="yellow")
    if schedule.of == "dataset" and not has_worker:
        return Text(f"{ago(schedule.next_at, now)}, no worker online", style="yellow")
    return Text(ago(schedule.next_at, now))


def _state(schedule: Schedule) -> Text:
    has_failures = schedule.of == "dataset" and schedule.error is not None
    is_bad = has_failures or schedule.last_state in ("dlq", "blocked", "halted")
    state = state_name(schedule.last_state or "–") + (", with failures" if has_failures else "")
    return Text(state, style="red" if is_bad else "")


def _missed_runs(schedule: Schedule) -> Text | None:
    return Text(str(schedule.missed), style="yellow") if schedule.missed else None


def _run(schedule: Schedule) -> str | None:
    if schedule.of == "dataset":
        return None if schedule.last_sweep is None else f"sweep {schedule.last_sweep}"
    return None if schedule.last_job is None else f"job {schedule.last_job}"
