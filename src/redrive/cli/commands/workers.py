"""`redrive workers`: who is there, and what each has in its hands."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from ...core.text import format_duration
from ...ops.defaults import QUIET
from ...ops.render import ago, document
from ...ops.workers import WorkerLine, Workers
from ..command import Commands
from ..options import AsJson, HeartbeatTimeout, Where, operator
from ..render.output import console, print_json, show
from ..render.suggestions import spelled
from ..render.table import Column, fitted

app = Commands(help="List workers.")
STYLES = {"alive": "green", "silent": "bold red", "lost": "red", "ended": "dim"}
LABELS = {"alive": "online", "silent": "offline", "lost": "lost", "ended": "stopped"}
"""How a presence is shown; JSON keeps its own name."""
SIGNS = {"alive": "●", "silent": "✗", "lost": "✗", "ended": "○"}


@app.command("list")
def list_(
    everyone: Annotated[bool, typer.Option("--all", help="Include workers that stopped")] = False,
    heartbeat_timeout: HeartbeatTimeout = QUIET,
    where: Where = None,
    as_json: AsJson = False,
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
    with operator(where) as ops:
        found = ops.workers.find(quiet=heartbeat_timeout)
    some = [one for one in found.workers if everyone or one.presence != "ended"]
    if as_json:
        print_json(document(some))
        return
    out = console()
    ended = len(found.workers) - len(some)
    if not some:
        show(
            out,
            Text(f"No worker is online; {ended:,} stopped in the last week (--all)." if ended else "No workers."),
        )
        return
    show(out, _lines(some, found, out.width, ended))


def _lines(some: list[WorkerLine], found: Workers, width: int, ended: int) -> Group:
    columns = [
        Column("worker", least=18),
        Column("state"),
        Column("last heartbeat"),
        Column("running", number=True),
        Column("longest", number=True, leave=1),
        Column("threads", number=True, leave=4),
        Column("version", leave=3),
        Column("job types", least=12, wants=20, cut=True, leave=2),
    ]
    rows: list[dict[str, str | Text]] = []
    for one in some:
        begun = one.longest_since
        state = f" ({one.state})" if one.presence == "alive" and one.state not in (None, "working") else ""
        rows.append(
            {
                "worker": one.name,
                "state": Text(f"{SIGNS[one.presence]} {LABELS[one.presence]}{state}", style=STYLES[one.presence]),
                "last heartbeat": ago(one.seen_at, found.now),
                "running": str(one.hands) if one.hands else "–",
                "longest": format_duration(round((found.now - begun).total_seconds())) if begun else "–",
                "threads": str(one.threads or "–"),
                "version": one.version or "–",
                "job types": ", ".join(one.kinds) or "–",
            }
        )
    hint = f"{ended:,} more stopped (--all)" if ended else spelled("`redrive jobs list --state running` lists their jobs.")
    return Group(fitted(columns, rows, width), "", Text(hint, style="dim"))
