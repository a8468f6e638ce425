"""`redrive schedules`: schedules of commands and datasets."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from ...core.text import format_duration
from ...ops.render import ago, document
from ...ops.schedules import Schedule
from ..command import Commands
from ..options import AsJson, Where, operator
from ..render.details import state_name
from ..render.output import console, print_json, show
from ..render.table import Column, fitted

app = Commands(help="List schedules.")
EMPTY = "No schedules."


@app.command("list")
def list_(where: Where = None, as_json: AsJson = False) -> None:
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
    with operator(where, app_first=True) as ops:
        found, now = ops.overview.schedules(), ops.now()
        is_manned = any(one.of == "dataset" for one in found) and ops.workers.missing() is None
    if as_json:
        print_json(document(found))
        return
    out = console()
    columns = [
        Column("name", least=14),
        Column("schedule", leave=1),
        Column("next"),
        Column("last"),
        Column("last state"),
        Column("missed", number=True),
        Column("id", number=True, leave=2),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "name": one.kind,
            "schedule": one.line or "–",
            "next": _next(one, now, is_manned),
            "last": ago(one.last_at, now),
            "last state": _state(one),
            "missed": Text(str(one.missed), style="yellow") if one.missed else "–",
            "id": _run(one),
        }
        for one in found
    ]
    show(out, fitted(columns, rows, out.width) if rows else Text(EMPTY))


def _next(one: Schedule, now: datetime, is_manned: bool) -> Text:
    if one.late_since is not None:
        return Text(f"late, {format_duration(round((now - one.late_since).total_seconds()))}", style="bold red")
    if one.next_at is None:
        return Text("no worker online", style="yellow")
    if one.of == "dataset" and not is_manned:
        return Text(f"{ago(one.next_at, now)}, no worker online", style="yellow")
    return Text(ago(one.next_at, now))


def _state(one: Schedule) -> Text:
    has_failures = one.of == "dataset" and one.error is not None
    is_bad = has_failures or one.last_state in ("dlq", "blocked", "halted")
    state = state_name(one.last_state or "–") + (", with failures" if has_failures else "")
    return Text(state, style="red" if is_bad else "")


def _run(one: Schedule) -> str:
    if one.of == "dataset":
        return "–" if one.last_sweep is None else f"sweep {one.last_sweep}"
    return "–" if one.last_job is None else f"job {one.last_job}"
