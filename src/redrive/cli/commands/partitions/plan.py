"""`redrive plan`: plans that were kept: what one has planned, another applies."""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

import typer
from rich.console import Group
from rich.text import Text

from ....ops.operator import Operator
from ....ops.plans.stored import loaded
from ....ops.render import document
from ...apply.dead_letters import Canary, Detach, Most, Rate, Yes
from ...apply.partitions import AcceptDrift, HaltOn, Told, WithoutRaw, carried_out, data, planned
from ...command import Commands
from ...options import DRIFTED, Actor, AsJson, Because, Where, operator
from ...render.details import indented
from ...render.moments import both
from ...render.output import console, heading, pairs, print_json, show

app = Commands(help="Show and apply saved plans.")
Name = Annotated[str, typer.Argument(metavar="PLAN", help="ID or file of a plan")]


@app.command("show")
def show_(name: Name, where: Where = None, as_json: AsJson = False) -> None:
    """Show a saved plan.

    Shows its content, its author and its expiry.

    Examples:
        redrive plan show PLAN
        redrive plan show plan.json

    Exit codes:
        0: shown
        2: invalid option, unknown plan, or the plan was changed
        3: ledger not reachable, or its schema is from another version
        4: shown, but expired
    """
    with operator(where, app_first=True) as ops:
        stored, now = loaded(name), ops.now()
        expired = now >= stored.expires_at
        if as_json:
            said = {
                "id": stored.id,
                "plan": data(stored.plan),
                "actor": stored.actor,
                "ledger": stored.ledger,
                "expired": expired,
            }
            print_json(
                said | {"made_at": document(stored.made_at), "expires_at": document(stored.expires_at), "file": stored.path}
            )
        else:
            made = pairs()
            made.add_row("made", f"by {stored.actor}, {both(stored.made_at, now)}")
            made.add_row("expires", Text(both(stored.expires_at, now), style="red" if expired else ""))
            made.add_row("ledger", stored.ledger)
            made.add_row("digest", stored.plan.digest[:12])
            show(
                console(),
                Group(heading(f"Plan {stored.id}: {stored.plan.act}"), indented(planned(stored.plan)), "", indented(made)),
            )
        raise typer.Exit(DRIFTED if expired else 0)


@app.command()
def apply(
    name: Name, because: Because, accept_drift: AcceptDrift = None, without_raw: WithoutRaw = False, rate: Rate = None,
    canary: Canary = 0, halt_on: HaltOn = None, yes: Yes = False, most: Most = None, detach: Detach = False, actor: Actor = None,
    where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Apply a saved plan.

    The plan is applied exactly, or not at all. Confirmation works as in `redrive state retry`.

    Examples:
        redrive plan apply PLAN --because "INC-42"
        redrive plan apply plan.json --accept-drift skip --because "INC-42"

    Exit codes:
        0: done
        1: refused, not confirmed, or some were skipped
        2: invalid option, unknown plan, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
        4: the plan has expired, or the partitions changed; nothing was done
        130: interrupted
    """
    with operator(where, actor, app_first=True) as ops:
        how = Told(because, yes, most, as_json=as_json, detach=detach)
        applied(ops, name, how, accept_drift, rate=rate, canary=canary, halt_on=halt_on, without_raw=without_raw)


def applied(
    ops: Operator, name: str, how: Told, accept_drift: str | None, /, *, only: str | None = None, **options: Any
) -> NoReturn:
    """Apply it; ends with the exit status. only: plans of this act."""
    stored = loaded(name)
    if only is not None and stored.plan.act != only:
        apply_ = f'`redrive plan apply {name} --because "..."`'
        raise ValueError(f"plan {stored.id}: not a {only}, but a {stored.plan.act}; use {apply_}")
    stored.alive(ops.now(), ops.url)
    carried_out(ops, stored.plan, how, accept_drift=accept_drift == "skip", **options)
