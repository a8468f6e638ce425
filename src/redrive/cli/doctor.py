"""`redrive doctor`: what is wrong with a ledger, and what mends it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ..errors import LedgerError
from ..ops.defaults import QUIET
from ..ops.doctor import examined
from ..ops.document import document
from ..ops.finding import Health
from ..ops.imported import Unreadable
from .followup import spelled, then
from .moments import ago, utc
from .options import NO_LEDGER, AsJson, Named, Where, where_of
from .output import BAD_INPUT, bullets, complain, console, print_json, show

WARNING, CRITICAL = 1, 4


def doctor(
    app: Named = None,
    quiet: Annotated[
        float, typer.Option("--quiet", min=1, metavar="SECONDS", help="How long workers may be silent while work is due.")
    ] = QUIET,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Look for what is wrong with a ledger: each finding says since when, how many, and what mends it. Changes nothing.

    Looks at the schema, leases that nobody took back, keys whose holder is gone, counts that don't balance with the rows, the
    database's clock, work that is due while no worker is alive, dead letters that grow, and the audit's chain. Reads every job.

    Exit status: 0, all is well; 1, warnings; 4, something critical: work stands still, or cannot be vouched for; 2, a wrong
    option; 3, the ledger cannot be reached.
    """
    try:
        health = examined(where_of(app, where), quiet=quiet)
    except LedgerError as problem:
        complain(str(problem), *getattr(problem, "__notes__", ()))
        raise typer.Exit(NO_LEDGER) from None
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        print_json(document(health) | {"severity": health.severity})
    else:
        show(console(), _health(health))
    raise typer.Exit({None: 0, "warning": WARNING, "critical": CRITICAL}[health.severity])


def _health(health: Health) -> Group:
    shown: list[RenderableType] = [Text(health.url, style="dim")]
    if health.balance is not None:
        shown.append(Text(health.balance))
    if not health.findings:
        return Group(*shown, Text(f"All is well: {', '.join(health.checked)}.", style="green"))
    made = bullets()
    for one in health.findings:
        style = "bold red" if one.severity == "critical" else "yellow"
        since = "" if one.since is None or health.now is None else f" Since {utc(one.since)} UTC, {ago(one.since, health.now)}."
        made.add_row(
            Text("✗" if one.severity == "critical" else "•", style=style), Text(f"{one.says[0].upper()}{one.says[1:]}.{since}")
        )
        made.add_row("", Text(f"→ {then(spelled(one.mend))}", style="dim"))
    return Group(*shown, "", made)
