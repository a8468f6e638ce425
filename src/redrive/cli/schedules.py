"""`redrive schedules`: what fires by itself."""

from __future__ import annotations

from datetime import datetime

import typer
from rich.text import Text

from ..core.span import span
from ..ops.document import document
from ..ops.moments import ago
from ..ops.schedules import Schedule
from .fit import Column, fitted
from .options import AsJson, Where, operator
from .output import console, print_json, show

app = typer.Typer(no_args_is_help=True, help="Schedules: what fires by itself, when, and what was missed.")


@app.command("list")
def list_(where: Where = None, as_json: AsJson = False) -> None:
    """List commands that fire by themselves: when next, how the last time went, and what was missed while nobody was there.

    They are known by the firings that workers wrote down: a schedule that no worker has ever had is not in it.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found, now = ops.schedules(), ops.now()
    if as_json:
        print_json(document(found))
        return
    out = console()
    columns = [
        Column("command", least=14),
        Column("by", leave=1),
        Column("next"),
        Column("last"),
        Column("became"),
        Column("missed", number=True),
        Column("job", number=True, leave=2),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "command": one.kind,
            "by": one.line or "–",
            "next": _next(one, now),
            "last": ago(one.last_at, now),
            "became": Text(one.last_state or "–", style="red" if one.last_state in ("dlq", "blocked") else ""),
            "missed": Text(str(one.missed), style="yellow") if one.missed else "–",
            "job": str(one.last_job or "–"),
        }
        for one in found
    ]
    show(out, fitted(columns, rows, out.width) if rows else Text("nothing has fired by itself yet, as far as the ledger knows"))


def _next(one: Schedule, now: datetime) -> Text:
    if one.late_since is not None:
        return Text(f"late, {span(round((now - one.late_since).total_seconds()))}", style="bold red")
    return Text("nobody is there", style="yellow") if one.next_at is None else Text(ago(one.next_at, now))
