"""`redrive plan`: show and apply saved plans."""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

import typer
from rich.console import Group
from rich.text import Text

from ....ops.operator import Operator
from ....ops.plans.stored import StoredPlan, load_plan
from ....ops.render import both
from ...apply.confirm import ApplyOptions, Confirmation, Max, Yes
from ...apply.dead_letters import Canary, Detach, Rate
from ...apply.partitions import AcceptDrift, HaltOn, WithoutRaw, apply_plan, plan_data, plan_view
from ...command import CommandGroup
from ...errors import DRIFTED
from ...options import Because, ReadOptions, WriteOptions, open_operator
from ...render import FieldValue, fields, heading, indent, print_json, show

app = CommandGroup(help="Show and apply saved plans.")

Name = Annotated[str, typer.Argument(metavar="PLAN", help="ID or file of a plan")]


@app.command("show")
def show_(*, name: Name, options: ReadOptions) -> None:
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
    with open_operator(options, app_first=True) as ops:
        stored, now = load_plan(name), ops.now()
    is_expired = now >= stored.expires_at
    if options.as_json:
        print_json(
            {
                "id": stored.id,
                "plan": plan_data(stored.plan),
                "actor": stored.actor,
                "ledger": stored.ledger,
                "expired": is_expired,
                "made_at": stored.made_at,
                "expires_at": stored.expires_at,
                "file": stored.path,
            }
        )
    else:
        values: dict[str, FieldValue] = {
            "made": f"by {stored.actor}, {both(stored.made_at, now)}",
            "expires": Text(both(stored.expires_at, now), style="red" if is_expired else ""),
            "ledger": stored.ledger,
            "digest": stored.plan.digest[:12],
        }
        title = heading(f"Plan {stored.id}: {stored.plan.act}")
        show(Group(title, indent(plan_view(stored.plan)), "", indent(fields(values))))
    raise typer.Exit(DRIFTED if is_expired else 0)


@app.command()
def apply(
    *,
    name: Name,
    because: Because,
    accept_drift: AcceptDrift = None,
    without_raw: WithoutRaw = False,
    rate: Rate = None,
    canary: Canary = 0,
    halt_on: HaltOn = None,
    yes: Yes = False,
    max_count: Max = None,
    detach: Detach = False,
    options: WriteOptions,
) -> None:
    """Apply a saved plan.

    The plan is applied exactly, or not at all. Confirmation works as in `redrive state retry`.

    Examples:
        redrive plan apply PLAN --because "INC-42"
        redrive plan apply plan.json --accept-drift skip --because "INC-42"

    Exit codes:
        0: done
        1: refused, not confirmed, or some were skipped
        2: invalid option, unknown plan, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
        4: the plan has expired, or the partitions changed; nothing was done
        130: interrupted
    """
    with open_operator(options, app_first=True) as ops:
        options_ = ApplyOptions(because, Confirmation(yes, max_count), options.as_json, detach)
        limits = {"rate": rate, "canary": canary, "halt_on": halt_on, "without_raw": without_raw}
        apply_stored(ops, load_plan(name), options_, accept_drift, **limits)


def apply_stored(
    ops: Operator,
    stored: StoredPlan,
    apply: ApplyOptions,
    accept_drift: str | None,
    /,
    **limits: Any,
) -> NoReturn:
    """Apply a saved plan, and end the command with its exit code."""
    stored.check_current(ops.now(), ops.url)
    apply_plan(ops, stored.plan, apply, accept_drift=accept_drift == "skip", **limits)
