"""`redrive schedules`: what fires by itself."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from ..core.span import span
from ..ops.document import document
from ..ops.moments import ago
from ..ops.schedules import Schedule
from .command import Commands
from .fit import Column, fitted
from .options import AsJson, Where, operator
from .output import console, print_json, show
from .shown import state_name

app = Commands(help="List schedules.")
EMPTY = "No schedules of commands. Datasets with cron= are not listed; workers start their runs."


@app.command("list")
def list_(where: Where = None, as_json: AsJson = False) -> None:
    """List schedules.

    Shows the next run, the last run and missed runs of each schedule of a command. A schedule is
    listed after a worker has recorded its first run. Schedules of datasets are not listed.

    Examples:
        redrive schedules list
        redrive schedules list --json

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        found, now = ops.schedules(), ops.now()
    if as_json:
        print_json(document(found))
        return
    out = console()
    columns = [
        Column("command", least=14),
        Column("schedule", leave=1),
        Column("next"),
        Column("last"),
        Column("last state"),
        Column("missed", number=True),
        Column("job", number=True, leave=2),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "command": one.kind,
            "schedule": one.line or "–",
            "next": _next(one, now),
            "last": ago(one.last_at, now),
            "last state": Text(state_name(one.last_state or "–"), style="red" if one.last_state in ("dlq", "blocked") else ""),
            "missed": Text(str(one.missed), style="yellow") if one.missed else "–",
            "job": str(one.last_job or "–"),
        }
        for one in found
    ]
    show(out, fitted(columns, rows, out.width) if rows else Text(EMPTY))


def _next(one: Schedule, now: datetime) -> Text:
    if one.late_since is not None:
        return Text(f"late, {span(round((now - one.late_since).total_seconds()))}", style="bold red")
    return Text("no worker online", style="yellow") if one.next_at is None else Text(ago(one.next_at, now))
