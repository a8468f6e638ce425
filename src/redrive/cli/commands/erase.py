"""`redrive erase`: what is known of one user, taken out of the ledger."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.render import document
from ...ops.user_data import Erasure
from ..apply.confirm import confirmed
from ..apply.dead_letters import Dry, Most, Yes
from ..options import NOT_DONE, Actor, AsJson, Because, Where, operator, option
from ..render.output import console, print_json, show


def erase(
    user: Annotated[str, option("--user", "NAME", "Name of the user")],
    because: Because,
    yes: Yes = False,
    most: Most = None,
    dry_run: Dry = False,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Erase the data of one user.

    Erases payloads, results, errors and headers of ended jobs, dead letters, events and idempotency
    records. They are selected by the user's name in the key (domain:USER:...) or by the correlation
    ID `user_id`. Pending dead letters are discarded. A pseudonym replaces the name in partitions,
    errors, reasons, sweeps and the audit log.

    Queued and running jobs stay and are listed, so repeat the command later. Places that are not
    covered, such as backups, are printed. The command needs confirmation: type the number of rows
    at the prompt, or pass --yes --max N. The audit log records the erasure without the name.

    Examples:
        redrive erase --user ann --dry-run --because "request 17"
        redrive erase --user ann --yes --max 500 --because "request 17"

    Exit codes:
        0: no data of the user is left
        1: some data is left, or not confirmed
        2: invalid option, or no reason
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor) as ops:
        plan = ops.user_data.plan_erasure(user)
        stays = plan.stays
        if not as_json:
            show(console(), _plan(plan))
        if plan.count and not dry_run:
            confirmed(plan, yes=yes, most=most)
            stays = ops.user_data.erase(plan, because=because)
    done = bool(plan.count) and not dry_run
    if as_json:
        told = {name: value for name, value in document(plan).items() if name != "found"}
        print_json({"plan": told, "erased": done, "stays": list(stays)})
    elif done:
        show(console(), Text(f"Erased: {pluralise(plan.count, 'row')}"))
        show(console(), Text("Not covered: " + "; ".join(stays)))
    raise typer.Exit(NOT_DONE if plan.busy or plan.held else 0)


def _plan(plan: Erasure) -> RenderableType:
    parts = {
        "job": plan.jobs,
        "dead letter": plan.letters,
        "event": plan.events,
        "idempotency record": plan.keys,
        "mention": plan.mentions,
    }
    said = ", ".join(pluralise(many, name) for name, many in parts.items() if many)
    lines: list[RenderableType] = [Text(f"To erase: {said}" if said else "Nothing to erase.")]
    if plan.busy:
        some = ", ".join(map(str, plan.busy[:5])) + (" …" if len(plan.busy) > 5 else "")
        lines.append(Text(f"Kept: queued or running jobs {some}. Repeat the command after they have ended.", style="yellow"))
    if plan.held:
        lines.append(Text(f"Kept: {pluralise(plan.held, 'idempotency record')} of running operations.", style="yellow"))
    return Group(*lines)
