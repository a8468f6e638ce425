"""`redrive state rollback`, `mark-terminal`, `clear-terminal`, `pause` and `unpause`."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from ....core.text import pluralise
from ....ops.controls.model import resume_command
from ....ops.operator import Operator
from ....ops.partitions.markers import Steer
from ....ops.partitions.operations import Act
from ....ops.partitions.selection import MARKED
from ....ops.render import moment as parse_time
from ....ops.render import utc
from ...apply.confirm import Confirmation, require_reason, show_skipped
from ...apply.partitions import IncludeMarked, WithoutRaw
from ...errors import NOT_DONE
from ...options import Because, WriteOptions, flag, open_operator, option
from ...render import print_json, show, suggestion
from .requeue import Grant
from .selection import GivenUpOptions, PartitionArgument, PartitionOptions

WholeSource = Annotated[bool, flag("--whole-source", "Whole source, future partitions included")]
OUTCOMES = {
    "mark_terminal": "marked as given up",
    "clear_terminal": "allowed to retry",
    "pause": "paused",
    "unpause": "unpaused",
}
KEPT = "accepted before: the current run stays, and the rejected newer run is acknowledged"
MAX_LISTED = 10
SAME_DATA = (
    "The data is the same as before: both runs validated the same raw data. For other data, pass "
    "--to RUN."
)


def rollback(
    *,
    partition: PartitionArgument,
    because: Because,
    run_id: Annotated[
        str | None, option("--to", "RUN", "ID of the accepted run (default: the previous one)")
    ] = None,
    options: WriteOptions,
) -> None:
    """Restore an earlier accepted run.

    Consumers read that run from now on. Every byte is compared with its manifest first.

    Examples:
        redrive state rollback crm/acme/orders/2026-06-01 --because "bad data"
        redrive state rollback crm/acme/orders/2026-06-01 --to RUN --because "bad data"

    Exit codes:
        0: done
        1: no such run, or its raw data was changed
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        before = ops.partitions.history(partition)
        facts = ops.partitions.rollback(partition, run_id, because=because)
    if options.as_json:
        print_json(facts)
        return
    show(f"{facts.partition}: the current run is {facts.current_run_id}")
    if before is not None and before.facts.current_raw_id == facts.current_raw_id:
        show(SAME_DATA, style="yellow")


def mark_terminal(
    *, because: Because, which: PartitionOptions, confirmation: Confirmation, options: WriteOptions
) -> None:
    """Stop retrying partitions.

    They count as given up ("terminal") by your decision, so `redrive doctor` does not report them.
    This also acknowledges partitions that gave up by themselves. They are not retried until
    `redrive state clear-terminal`. If a newer run of an accepted partition was rejected, the
    current run stays and the rejection is acknowledged. Running attempts continue.

    Examples:
        redrive state mark-terminal crm/acme/orders/2026-06-01 --because "source has no data"
        redrive state mark-terminal crm --customer-id acme --because "customer left"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
    """
    _change_markers("mark_terminal", which, because, confirmation, options)


def clear_terminal(
    *,
    because: Because,
    which: GivenUpOptions,
    grant: Grant = None,
    include_marked: IncludeMarked = False,
    without_raw: WithoutRaw = False,
    confirmation: Confirmation,
    options: WriteOptions,
) -> None:
    """Retry partitions that gave up.

    These are the partitions in the state "gave up" ("terminal" in JSON). They are retried now, with
    new attempts: the policy's number, or --grant. Earlier attempts stay counted. Partitions that an
    operator marked as given up are left out, unless they are named one by one. So are partitions
    without raw data, as in `redrive state retry`.

    Examples:
        redrive state clear-terminal crm/acme/orders/2026-06-01 --because "source fixed"
        redrive state clear-terminal crm/orders --grant 3 --because "INC-42"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
    """
    included = {"include_marked": include_marked, "without_raw": without_raw}
    _change_markers("clear_terminal", which, because, confirmation, options, grant, **included)


def pause(
    *,
    because: Because,
    which: PartitionOptions,
    whole_source: WholeSource = False,
    until_time: Annotated[
        str | None,
        option(
            "--until-time", "WHEN", "End of the pause with --whole-source, such as 2026-06-01T06:00"
        ),
    ] = None,
    confirmation: Confirmation,
    options: WriteOptions,
) -> None:
    """Pause partitions or a whole source.

    Paused partitions are not started until they are unpaused. Running attempts continue. For a
    whole source, prefer `redrive pause source`, which also pauses its messages.

    Examples:
        redrive state pause crm/orders --status failed --because "INC-42"
        redrive state pause crm --whole-source --until-time 2026-06-01T06:00 --because "maintenance"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
    """
    if not whole_source:
        _change_markers("pause", which, because, confirmation, options)
    with open_operator(options, app_first=True) as ops:
        name = _source_name(which)
        until = None if until_time is None else parse_time(until_time)
        if confirmation.dry_run and options.as_json:
            print_json({"source": name, "paused": _is_paused(ops, name)})
        elif confirmation.dry_run:
            show(f"Would be paused: source {name}")
        else:
            source = ops.sources.pause(name, because=because, until=until)
            if options.as_json:
                print_json(source)
                return
            end = "it is unpaused" if source.until is None else f"{utc(source.until)} UTC"
            show(f"Source {name} is paused until {end}")
            show(suggestion(resume_command("source", name)))


def unpause(
    *,
    because: Because,
    which: PartitionOptions,
    whole_source: WholeSource = False,
    confirmation: Confirmation,
    options: WriteOptions,
) -> None:
    """Resume partitions or a whole source.

    They may start now. --whole-source resumes a source that was paused by a person or after a
    fault, as `redrive resume source` and `redrive resume parked` do.

    Examples:
        redrive state unpause crm/orders --because "fixed"
        redrive state unpause crm --whole-source --because "maintenance done"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
    """
    if not whole_source:
        _change_markers("unpause", which, because, confirmation, options)
    with open_operator(options, app_first=True) as ops:
        name, dry_run = _source_name(which), confirmation.dry_run
        was_paused = _is_paused(ops, name) or _is_paused_by_hand(ops, name)
        if not dry_run:
            ops.sources.unpause(name, because=because)
    if options.as_json:
        print_json({"source": name, "paused": dry_run and was_paused})
    elif not was_paused:
        show(f"Source {name} was not paused")
    else:
        show(f"Would be unpaused: source {name}" if dry_run else f"Source {name} unpaused")


def _is_paused(ops: Operator, name: str) -> bool:
    return any(source.paused for source in ops.sources.find() if source.source == name)


def _is_paused_by_hand(ops: Operator, name: str) -> bool:
    return any(pause.scope == "source" and pause.name == name for pause in ops.pauses.find())


def _source_name(which: PartitionOptions) -> str:
    names: list[str] = [*(which.words or ()), *([] if which.source is None else [which.source])]
    if len(names) != 1 or "/" in names[0]:
        example = 'redrive pause source crm --because "..."'
        raise ValueError(f"--whole-source: pass one source, or use `{example}`")
    return names[0]


def _change_markers(
    act: Steer,
    which: PartitionOptions,
    because: str,
    confirmation: Confirmation,
    options: WriteOptions,
    grant: int | None = None,
    **included: bool,
) -> NoReturn:
    """Mark, clear, pause or unpause partitions, print the outcome and end the command."""
    with open_operator(options, app_first=True) as ops:
        require_reason(because)
        plan = ops.partitions.chosen(act, which.selection(), **included)
        no_match = "" if plan.count else ops.partitions.describe_no_match(which.selection())
        is_applied = bool(plan.count) and not confirmation.dry_run
        outcome = Act(0)
        if is_applied:
            confirmation.require_for_partitions(plan)
            outcome = ops.partitions.steer(plan, because=because, grant=grant)
    if options.as_json:
        counts = {"act": act, "matched": plan.count, "done": outcome.count}
        skipped = {"skipped": outcome.skipped, "left_alone": plan.left}
        print_json({**counts, **skipped, "audit": outcome.audit})
    elif is_applied:
        kept = f"; {plan.kept:,} of these {KEPT}" if plan.kept else ""
        show(f"{pluralise(outcome.count, 'partition')} {OUTCOMES[act]}{kept}")
        show_skipped(dict(list(outcome.skipped.items())[:MAX_LISTED]))
        if len(outcome.skipped) > MAX_LISTED:
            show(f"… {len(outcome.skipped) - MAX_LISTED:,} more skipped", style="yellow")
    elif plan.count:
        part = "" if plan.changes == plan.count else f"{plan.changes:,} of "
        kept = f"; {plan.kept:,} of these {KEPT}" if plan.kept else ""
        show(f"Would be {OUTCOMES[act]}: {part}{pluralise(plan.count, 'partition')}{kept}")
    elif not plan.left:
        show(no_match)
    if plan.left and not options.as_json:
        for reason, count in plan.left.items():
            way = "--include-marked" if reason.startswith(MARKED) else "--without-raw"
            show(f"Left out: {count:,} {reason} (add {way})", style="yellow")
    is_complete = outcome.count == plan.count > 0
    raise typer.Exit(0 if confirmation.dry_run or is_complete else NOT_DONE)
