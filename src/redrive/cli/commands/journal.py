"""`redrive journal`: the latest log records, and new ones as they are written."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.text import Text

from ...core.text import format_duration
from ...ops.overview.journal import JournalEntry
from ...ops.render import utc
from ..command import CommandGroup
from ..options import Kind, ReadOptions, open_operator, option
from ..render import first_line, print_json_line, show
from ..unknown_names import unknown_kind
from .partitions.render import rejection_text

app = CommandGroup(help="Show log records of jobs and partitions.")

POLL_SECONDS = 1.0
STYLES = {
    "failed": "yellow",
    "rejected": "yellow",
    "lost": "red",
    "dead": "bold red",
    "done": "green",
    "submitted": "dim",
    "returned": "dim",
}


@app.command()
def tail(
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="New records until Ctrl+C")
    ] = False,
    event: Annotated[
        list[str] | None,
        option(
            "--event",
            "NAME",
            "Only submitted, failed, lost, returned, done, dead, rejected or decided (repeatable)",
        ),
    ] = None,
    kind: Kind = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=1, max=500, metavar="N", help="Maximum number of past records"
        ),
    ] = 20,
    options: ReadOptions,
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
    with open_operator(options) as ops:
        reader = ops.overview.tail(kind=kind, events=event or (), limit=limit)
        try:
            for records in reader:
                for record in records:
                    _print(record, as_json=options.as_json)
                if not follow:
                    break
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            return
        is_empty = not options.as_json and not records
        unknown = unknown_kind(ops, kind, or_dataset=True) if is_empty else None
    if not follow and is_empty:
        no_match = unknown or "No log record matches."
        show(no_match if kind or event else "No log records.")


def _print(record: JournalEntry, *, as_json: bool) -> None:
    if as_json:
        print_json_line(record, flush=True)
        return
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{utc(record.at)}  ", style="dim")
    style = STYLES.get(record.event, "bold" if record.actor else "")
    line.append(f"{record.event:<9} ", style=style)
    line.append(" ".join(record_text(record).split()))
    show(line)


def record_text(record: JournalEntry) -> str:
    """Return the text of a record, without its time and its event."""
    if record.actor is not None:
        kind = f"{record.kind} " if record.kind else ""
        return f"{kind}by {record.actor}: {record.reason or ''}"
    if record.event == "rejected":
        reason = rejection_text(record.reason, record.error)
        return f"{record.key} attempt {record.attempt}: {reason}"
    parts = [f"{record.kind or '?'} job {record.job_id}"]
    if record.attempt and record.event in ("failed", "lost", "returned", "done"):
        parts.append(f"attempt {record.attempt}")
    if record.seconds is not None:
        parts.append(format_duration(round(record.seconds, 2 if record.seconds < 10 else 0)))
    if record.event == "dead" and record.reason:
        parts.append(f"{record.reason}, dead letter {record.dead_id}")
    text, error = ", ".join(parts), first_line(record.error)
    if error:
        return f"{text}: {error}"
    return text if record.event == "dead" else f"{text}  {record.key or ''}"
