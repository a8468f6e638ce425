"""`redrive workers`: list workers."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from rich.text import Text

from ...core.text import format_duration
from ...ops.context import QUIET
from ...ops.render import ago
from ...ops.workers import WorkerLine
from ..command import CommandGroup
from ..options import HeartbeatTimeout, ReadOptions, flag, open_operator
from ..render import Column, print_rows
from ..suggestions import expand_commands

app = CommandGroup(help="List workers.")
PRESENCES = {
    "alive": ("●", "online", "green"),
    "silent": ("✗", "offline", "bold red"),
    "lost": ("✗", "lost", "red"),
    "ended": ("○", "stopped", "dim"),
}
"""Sign, printed word and style of each presence. JSON has the stored word."""


@app.command("list")
def list_(
    *,
    include_stopped: Annotated[bool, flag("--all", "Include workers that stopped")] = False,
    heartbeat_timeout: HeartbeatTimeout = QUIET,
    options: ReadOptions,
) -> None:
    """List workers.

    Online workers come first. An offline worker has sent no heartbeat for --heartbeat-timeout
    seconds. The process of a lost worker was killed or crashed, and other workers have taken over
    its jobs. Workers are listed for a week.

    Examples:
        redrive workers list
        redrive workers list --all

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        report = ops.workers.find(quiet=heartbeat_timeout)
    workers = [worker for worker in report.workers if include_stopped or worker.presence != "ended"]
    stopped = len(report.workers) - len(workers)
    hint = expand_commands("`redrive jobs list --state running` lists their jobs.")
    note = f"{stopped:,} more stopped (--all)" if stopped else hint
    none_online = f"No worker is online; {stopped:,} stopped in the last week (--all)."
    empty = none_online if stopped else "No workers."
    print_rows(workers, options.as_json, _columns(report.now), empty=empty, below=[note])


def _columns(now: datetime) -> list[Column[WorkerLine]]:
    def longest(worker: WorkerLine) -> str | None:
        since = worker.longest_since
        return format_duration(round((now - since).total_seconds())) if since else None

    return [
        Column("worker", lambda worker: worker.name, min_width=18),
        Column("state", _state),
        Column("last heartbeat", lambda worker: ago(worker.seen_at, now)),
        Column("running", lambda worker: str(worker.hands or "–"), is_number=True),
        Column("longest", longest, is_number=True, drop_order=1),
        Column("threads", lambda worker: str(worker.threads or "–"), is_number=True, drop_order=4),
        Column("version", lambda worker: worker.version or None, drop_order=3),
        Column(
            "job types",
            lambda worker: ", ".join(worker.kinds) or None,
            min_width=12,
            wanted_width=20,
            truncate=True,
            drop_order=2,
        ),
    ]


def _state(worker: WorkerLine) -> Text:
    sign, word, style = PRESENCES[worker.presence]
    is_unusual = worker.presence == "alive" and worker.state not in (None, "working")
    return Text(f"{sign} {word}{f' ({worker.state})' if is_unusual else ''}", style=style)
