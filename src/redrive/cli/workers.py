"""`redrive workers`: who is there, and what each has in its hands."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from ..core.span import span
from ..ops.defaults import QUIET
from ..ops.document import document
from ..ops.moments import ago
from ..ops.workers import WorkerLine, Workers
from .fit import Column, fitted
from .followup import spelled
from .options import AsJson, Where, operator
from .output import console, print_json, show

app = typer.Typer(no_args_is_help=True, help="Workers: who is there, and what each has in its hands.")
STYLES = {"alive": "green", "silent": "bold red", "lost": "red", "ended": "dim"}
SIGNS = {"alive": "●", "silent": "✗", "lost": "✗", "ended": "○"}


@app.command("list")
def list_(
    everyone: Annotated[bool, typer.Option("--all", help="Those that have ended too.")] = False,
    quiet: Annotated[
        float, typer.Option("--quiet", min=1, metavar="SECONDS", help="How long a worker may be silent before it counts as gone.")
    ] = QUIET,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List workers: those alive first, then those that went silent, then those that were lost: killed, or crashed. They are
    remembered for a week.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found = ops.workers(quiet=quiet)
    some = [one for one in found.workers if everyone or one.presence != "ended"]
    if as_json:
        print_json(document(some))
        return
    out = console()
    ended = len(found.workers) - len(some)
    if not some:
        show(
            out,
            Text(f"no worker is there; {ended:,} ended in the last week (--all)" if ended else "no worker was ever seen here"),
        )
        return
    show(out, _lines(some, found, out.width, ended))


def _lines(some: list[WorkerLine], found: Workers, width: int, ended: int) -> Group:
    columns = [
        Column("worker", least=18),
        Column("is"),
        Column("seen"),
        Column("running", number=True),
        Column("longest", number=True, leave=1),
        Column("threads", number=True, leave=4),
        Column("version", leave=3),
        Column("kinds", least=12, wants=20, cut=True, leave=2),
    ]
    rows: list[dict[str, str | Text]] = []
    for one in some:
        begun = one.longest_since
        state = f" ({one.state})" if one.presence == "alive" and one.state not in (None, "working") else ""
        rows.append(
            {
                "worker": one.name,
                "is": Text(f"{SIGNS[one.presence]} {one.presence}{state}", style=STYLES[one.presence]),
                "seen": ago(one.seen_at, found.now),
                "running": str(one.hands) if one.hands else "–",
                "longest": span(round((found.now - begun).total_seconds())) if begun else "–",
                "threads": str(one.threads or "–"),
                "version": one.version or "–",
                "kinds": ", ".join(one.kinds) or "–",
            }
        )
    hint = (
        f"and {ended:,} that ended in order (--all)"
        if ended
        else spelled("`redrive jobs list --state running` for what they have.")
    )
    return Group(fitted(columns, rows, width), "", Text(hint, style="dim"))
