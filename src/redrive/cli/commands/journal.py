"""`redrive journal`: what happened last, and what happens."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from ...core.text import format_duration
from ...ops.overview.journal import Happening
from ...ops.render import document, utc
from ..command import Commands
from ..options import AsJson, Kind, Where, operator
from .partitions.render import rejected
from ..render.output import COMMANDS, console, show

app = Commands(help="Show log records of jobs and partitions.")
LOOK = 1.0
"""Seconds between two looks."""
STYLES = {
    "failed": "yellow", "rejected": "yellow", "lost": "red", "dead": "bold red", "done": "green", "submitted": "dim",
    "returned": "dim",
}  # fmt: skip
Event = Annotated[
    list[str] | None,
    typer.Option(
        "--event", metavar="NAME", show_default=False,
        help="Only submitted, failed, lost, returned, done, dead, rejected or decided (repeatable)",
    ),
]  # fmt: skip


@app.command()
def tail(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="New records until Ctrl+C")] = False,
    event: Event = None,
    kind: Kind = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, metavar="N", help="Maximum number of past records")] = 20,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show the latest log records.

    Shows submitted, failed, lost, done and dead jobs, rejected partitions and decisions, newest
    last. They are read from the ledger. A rejected partition is listed until a later run is
    accepted. `redrive state history PARTITION` lists every attempt at a partition. With --json each
    line is one document.

    Examples:
        redrive journal tail
        redrive journal tail --follow --event failed --event dead

    Exit codes:
        0: shown, also after Ctrl+C
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    out = console()
    with operator(where) as ops:
        reader = ops.overview.tail(kind=kind, events=event or (), limit=limit)
        try:
            for some in reader:
                for one in some:
                    _print(one, out, as_json=as_json)
                if not follow:
                    break
                time.sleep(LOOK)
        except KeyboardInterrupt:
            return
    if not follow and not as_json and not some:
        show(out, Text("No log record matches." if kind or event else "No log records."))


def _print(one: Happening, out: Console, *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(document(one), ensure_ascii=False, allow_nan=False)
        print(COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)
        return
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{utc(one.at)}  ", style="dim")
    line.append(f"{one.event:<9} ", style=STYLES.get(one.event, "bold" if one.actor else ""))
    line.append(" ".join(said(one).split()))
    show(out, line)


def said(one: Happening) -> str:
    """The text of a record, without its time and its event."""
    if one.actor is not None:
        return f"{one.kind + ' ' if one.kind else ''}by {one.actor}: {one.reason or ''}"
    if one.event == "rejected":
        return f"{one.key} attempt {one.attempt}: {rejected(one.reason, one.error)}"
    parts = [f"{one.kind or '?'} job {one.job_id}"]
    if one.attempt and one.event in ("failed", "lost", "returned", "done"):
        parts.append(f"attempt {one.attempt}")
    if one.seconds is not None:
        parts.append(format_duration(round(one.seconds, 2 if one.seconds < 10 else 0)))
    if one.event == "dead" and one.reason:
        parts.append(f"{one.reason}, dead letter {one.dead_id}")
    text = ", ".join(parts)
    first = (one.error or "").partition("\n")[0]
    return f"{text}: {first}" if first else text if one.event == "dead" else f"{text}  {one.key or ''}"
