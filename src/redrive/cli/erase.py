"""`redrive erase`: what is known of one user, taken out of the ledger."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ..core.amount import amount
from ..ops.document import document
from ..ops.erase import Erasure
from .act import Dry, Most, Yes
from .confirm import confirmed
from .options import NOT_DONE, Actor, AsJson, Because, Where, operator, option
from .output import console, print_json, show


def erase(
    user: Annotated[str, option("--user", "NAME", "Whose data.")],
    because: Because,
    yes: Yes = False,
    most: Most = None,
    dry_run: Dry = False,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Erase what the ledger knows of one user: payloads, results, errors, headers and keys of theirs.

    Whatever has them in its key (domain:USER:...) or as the correlation id `user_id`: jobs that have ended, dead letters (pending
    ones are discarded), events, idempotency keys; and their name in partitions, errors, reasons, selections of sweeps and the
    audit log, where a pseudonym takes its place. Prints the places that are not covered, such as backups.
    What waits or runs is left, and listed: run it again later. Asks for
    confirmation: type the number of rows, or say --yes --max N. The audit says that it was done, and not whose data it was.

    Exit status: 0, nothing of theirs is left; 1, some is left, or not confirmed; 2, a wrong option, or no reason; 3, the ledger
    cannot be reached or has another schema.
    """
    with operator(where, actor) as ops:
        plan = ops.erasing(user)
        stays = plan.stays
        if not as_json:
            show(console(), _plan(plan))
        if plan.count and not dry_run:
            confirmed(plan, yes=yes, most=most)
            stays = ops.erase(plan, because=because)
    done = bool(plan.count) and not dry_run
    if as_json:
        told = {name: value for name, value in document(plan).items() if name != "found"}
        print_json({"plan": told, "erased": done, "stays": list(stays)})
    elif done:
        show(console(), Text(f"Erased: {amount(plan.count, 'row')}"))
        show(console(), Text("Not covered: " + "; ".join(stays)))
    raise typer.Exit(NOT_DONE if plan.busy or plan.held else 0)


def _plan(plan: Erasure) -> RenderableType:
    parts = {"job": plan.jobs, "dead letter": plan.letters, "event": plan.events, "key": plan.keys, "mention": plan.mentions}
    said = ", ".join(amount(many, name) for name, many in parts.items() if many)
    lines: list[RenderableType] = [Text(f"To erase: {said}" if said else "nothing of theirs that could be erased")]
    if plan.busy:
        some = ", ".join(map(str, plan.busy[:5])) + (" …" if len(plan.busy) > 5 else "")
        lines.append(Text(f"Left: jobs that wait or run: {some}. Run this again when they have ended.", style="yellow"))
    if plan.held:
        lines.append(Text(f"Left: {amount(plan.held, 'key')} that somebody is at right now.", style="yellow"))
    return Group(*lines)
