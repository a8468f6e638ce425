"""`redrive doctor`: what is wrong with a ledger, and what mends it."""

from __future__ import annotations

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...errors import LedgerError
from ...ops.defaults import QUIET
from ...ops.health.doctor import examine
from ...ops.health.finding import Health
from ...ops.render import document
from ...ops.user_code import Unreadable
from ..options import NO_LEDGER, AsJson, HeartbeatTimeout, Named, Where, where_of
from ..render.output import BAD_INPUT, complain, complain_of, console, print_json, show
from .health import problems

WARNING, CRITICAL = 1, 4
SAMPLED = "raw data (up to 100 runs of each dataset)"


def doctor(
    app: Named = None,
    heartbeat_timeout: HeartbeatTimeout = QUIET,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Check a ledger for problems.

    Checks the schema, expired leases, abandoned idempotency records, counts, the database's clock,
    workers, dead letters, partitions and the audit log. Each problem is printed with its count, its
    start and its fix. Reads every job and changes nothing.

    Examples:
        redrive doctor
        redrive doctor --ledger shop:app --json

    Exit codes:
        0: no problems found
        1: warnings
        2: invalid option
        3: ledger not reachable
        4: critical problems: work is stopped, lost or not verifiable
    """
    try:
        health = examine(where_of(app, where), quiet=heartbeat_timeout)
    except LedgerError as problem:
        complain_of(problem)
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
    if health.balance is not None and not health.balance.startswith("0 submitted"):
        shown.append(Text(health.balance))
    if health.no_worker is not None:
        shown.append(Text(f"{health.no_worker}.", style="yellow"))
    names = [SAMPLED if name == "raw data" else name for name in health.checked]
    checked = Text(f"Checked: {', '.join(names)}.", style="dim")
    if not health.findings:
        return Group(*shown, Text("No problems found.", style="green"), checked)
    found = pluralise(len(health.findings), "problem")
    return Group(*shown, "", Text(f"{found} found:", style="bold"), problems(health.findings, health.now), "", checked)
