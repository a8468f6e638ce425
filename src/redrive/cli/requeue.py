"""Requeue: `redrive state retry | reprocess | revalidate`: planned, confirmed, queued; workers do the rest."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from .act import Canary, Detach, Dry, Most, Rate, Yes
from .options import Actor, AsJson, Where, operator
from .planned import BecauseOf, HaltOn, Keep, Out, Told, WithoutRaw, carried_out
from .selectors import (
    Customers,
    Error,
    First,
    InLane,
    Last,
    MinAttempts,
    On,
    Query,
    Source,
    Status,
    Words,
    which,
)  # fmt: skip

ClearTerminal = Annotated[bool, typer.Option("--clear-terminal", help="Also what is terminal, with new attempts.")]
Grant = Annotated[
    int | None,
    typer.Option(
        "--grant",
        min=1,
        metavar="N",
        help="So many new attempts for each; clears terminal ones too. Default: the policy's.",
        show_default=False,
    ),
]
ToLane = Annotated[
    Literal["fresh", "retry", "backfill"] | None, typer.Option("--to-lane", help="Into this lane.", show_default=False)
]


def retry(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, because: BecauseOf = None, clear_terminal: ClearTerminal = False, grant: Grant = None,
    without_raw: WithoutRaw = False, to_lane: ToLane = None, yes: Yes = False, most: Most = None, dry_run: Dry = False,
    keep: Keep = False, out: Out = None, rate: Rate = None, canary: Canary = 0, halt_on: HaltOn = None, detach: Detach = False,
    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Have what failed extracted again, now: a new run into a new folder.

    First a plan; more than 20 ask for a yes, more than 100 for the number; scripts say --yes --max N. What is running now is left
    alone and listed; what is accepted is for `reprocess`.

    Exit status: 0, all queued; 1, some or none of them, or a rail; 2, a wrong option, no selection, no reason, or no terminal to
    confirm at; 3, the ledger cannot be reached or has another schema; 4, it drifted: nothing was done; 130, interrupted.
    """
    with operator(where, actor, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)
        plan = ops.retry(asked, clear_terminal=clear_terminal, grant=grant or 0, lane=to_lane)
        how = Told(because, yes, most, dry_run, as_json, detach, keep, out)
        carried_out(ops, plan, how, rate=rate, canary=canary, halt_on=halt_on, without_raw=without_raw)


def reprocess(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, because: BecauseOf = None, to_lane: ToLane = None, yes: Yes = False, most: Most = None,
    dry_run: Dry = False, keep: Keep = False, out: Out = None, rate: Rate = None, canary: Canary = 0, halt_on: HaltOn = None,
    detach: Detach = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Have what is accepted extracted once more. Until a newer run is accepted, the one in force stays readable.

    Planned and confirmed as by `retry`.

    Exit status: 0, all queued; 1, some or none of them, or a rail; 2, a wrong option, no selection, no reason, or no terminal to
    confirm at; 3, the ledger cannot be reached or has another schema; 4, it drifted: nothing was done; 130, interrupted.
    """
    with operator(where, actor, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)
        plan = ops.reprocess(asked, lane=to_lane)
        how = Told(because, yes, most, dry_run, as_json, detach, keep, out)
        carried_out(ops, plan, how, rate=rate, canary=canary, halt_on=halt_on)


def revalidate(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, because: BecauseOf = None, to_lane: ToLane = None, yes: Yes = False, most: Most = None,
    dry_run: Dry = False, keep: Keep = False, out: Out = None, rate: Rate = None, canary: Canary = 0, halt_on: HaltOn = None,
    detach: Detach = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Have the raw data that is there judged once more, by the checks as they are now; nothing is extracted.

    Planned and confirmed as by `retry`. Refused where there is no raw data.

    Exit status: 0, all queued; 1, some or none of them, or a rail; 2, a wrong option, no selection, no reason, or no terminal to
    confirm at; 3, the ledger cannot be reached or has another schema; 4, it drifted: nothing was done; 130, interrupted.
    """
    with operator(where, actor, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)
        plan = ops.revalidate(asked, lane=to_lane)
        how = Told(because, yes, most, dry_run, as_json, detach, keep, out)
        carried_out(ops, plan, how, rate=rate, canary=canary, halt_on=halt_on)
