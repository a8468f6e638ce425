"""Steer: `redrive state rollback | mark-terminal | clear-terminal | pause | unpause`: what is done without another attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.text import Text

from ....ops.operator import Operator
from ....ops.partitions.markers import Steer
from ....ops.partitions.operator import Act
from ....ops.partitions.selection import Selection
from ....ops.render import document
from ...apply.confirm import agreed
from ...apply.dead_letters import Dry, Most, Yes
from ...apply.partitions import partitions
from ...options import NOT_DONE, Actor, AsJson, Because, Where, operator, option
from ...render.moments import moment
from ...render.output import console, print_json, show
from .selection import (  # fmt: skip
    Customers,
    Error,
    First,
    InLane,
    Last,
    MinAttempts,
    On,
    Partition,
    Query,
    Source,
    Status,
    Words,
    which,
)
from .requeue import Grant

To = Annotated[str | None, option("--to", "RUN", "ID of the accepted run (default: the previous one)")]
WholeSource = Annotated[bool, typer.Option("--whole-source", help="Whole source, future partitions included")]
UntilMoment = Annotated[
    str | None, option("--until-time", "WHEN", "End of the pause with --whole-source, such as 2026-06-01T06:00")
]
PAST = {"mark_terminal": "marked as given up", "clear_terminal": "cleared", "pause": "paused", "unpause": "unpaused"}


def rollback(
    partition: Partition, because: Because, to: To = None, actor: Actor = None, where: Where = None, as_json: AsJson = False
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
    with operator(where, actor, app_first=True) as ops:
        before = ops.partitions.history(partition)
        facts = ops.partitions.rollback(partition, to, because=because)
        if as_json:
            print_json(document(facts))
        else:
            show(console(), Text(f"{facts.partition}: the current run is {facts.current_run_id}"))
            if before is not None and before.facts.current_raw_id == facts.current_raw_id:
                same = "The data is the same as before: both runs validated the same raw data. For other data, pass --to RUN."
                show(console(), Text(same, style="yellow"))


def mark_terminal(
    because: Because, words: Words = None, source: Source = None, customer: Customers = None, query: Query = None,
    since: First = None, until: Last = None, on: On = None, status: Status = None, error: Error = None,
    min_attempts: MinAttempts = None, lane: InLane = None, yes: Yes = False, most: Most = None, dry_run: Dry = False,
    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Stop retrying partitions.

    They are not retried until they are cleared. Running attempts continue.

    Examples:
        redrive state mark-terminal crm/acme/orders/2026-06-01 --because "source has no data"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
    """
    asked = lambda: which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)  # noqa: E731  # what is wrong with it is said where errors are caught
    _steer("mark_terminal", asked, because, yes, most, dry_run, actor, where, as_json)


def clear_terminal(
    because: Because, words: Words = None, source: Source = None, customer: Customers = None, query: Query = None,
    since: First = None, until: Last = None, on: On = None, status: Status = "terminal", error: Error = None,
    min_attempts: MinAttempts = None, lane: InLane = None, grant: Grant = None, yes: Yes = False, most: Most = None,
    dry_run: Dry = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Retry partitions that gave up.

    They are retried now, with new attempts: the policy's number, or --grant. Earlier attempts stay
    counted.

    Examples:
        redrive state clear-terminal crm/acme/orders/2026-06-01 --because "source fixed"
        redrive state clear-terminal crm/orders --grant 3 --because "INC-42"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
    """
    asked = lambda: which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)  # noqa: E731  # what is wrong with it is said where errors are caught
    _steer("clear_terminal", asked, because, yes, most, dry_run, actor, where, as_json, grant)


def pause(
    because: Because, words: Words = None, source: Source = None, customer: Customers = None, query: Query = None,
    since: First = None, until: Last = None, on: On = None, status: Status = None, error: Error = None,
    min_attempts: MinAttempts = None, lane: InLane = None, whole_source: WholeSource = False, until_moment: UntilMoment = None,
    yes: Yes = False, most: Most = None, dry_run: Dry = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Pause partitions or a whole source.

    Paused partitions are not started until they are unpaused. Running attempts continue.

    Examples:
        redrive state pause crm/orders --status failed --because "INC-42"
        redrive state pause crm --whole-source --until-time 2026-06-01T06:00 --because "maintenance"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
    """
    if whole_source:
        with operator(where, actor, app_first=True) as ops:
            name = _whole(words, source)
            until_time = None if until_moment is None else moment(until_moment)
            if dry_run:
                if as_json:
                    print_json({"source": name, "paused": _is_paused(ops, name)})
                else:
                    show(console(), Text(f"Would be paused: source {name}"))
                return
            found = ops.partitions.pause_source(name, because=because, until=until_time)
            if as_json:
                print_json(document(found))
            else:
                until_ = "until it is unpaused" if found.until is None else f"until {found.until:%Y-%m-%d %H:%M:%S} UTC"
                show(console(), Text(f"Source {name} is paused {until_}"))
        return
    asked = lambda: which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)  # noqa: E731  # what is wrong with it is said where errors are caught
    _steer("pause", asked, because, yes, most, dry_run, actor, where, as_json)


def unpause(
    because: Because, words: Words = None, source: Source = None, customer: Customers = None, query: Query = None,
    since: First = None, until: Last = None, on: On = None, status: Status = None, error: Error = None,
    min_attempts: MinAttempts = None, lane: InLane = None, whole_source: WholeSource = False, yes: Yes = False,
    most: Most = None, dry_run: Dry = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Resume partitions or a whole source.

    They may start now. --whole-source resumes a source that was paused by a person or after a
    fault.

    Examples:
        redrive state unpause crm/orders --because "fixed"
        redrive state unpause crm --whole-source --because "maintenance done"

    Exit codes:
        0: all changed
        1: some or none changed
        2: invalid option, no selection, or no terminal for the confirmation
        3: ledger not reachable, or its schema is from another version
    """
    if whole_source:
        with operator(where, actor, app_first=True) as ops:
            name = _whole(words, source)
            was_paused = _is_paused(ops, name)
            if not dry_run:
                ops.partitions.unpause_source(name, because=because)
            if as_json:
                print_json({"source": name, "paused": dry_run and was_paused})
            elif not was_paused:
                show(console(), Text(f"Source {name} was not paused"))
            else:
                show(console(), Text(f"Would be unpaused: source {name}" if dry_run else f"Source {name} unpaused"))
        return
    asked = lambda: which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)  # noqa: E731  # what is wrong with it is said where errors are caught
    _steer("unpause", asked, because, yes, most, dry_run, actor, where, as_json)


def _is_paused(ops: Operator, name: str) -> bool:
    return any(one.paused for one in ops.partitions.sources() if one.source == name)


def _whole(words: list[str] | None, source: str | None) -> str:
    names: list[str] = [*(words or ()), *([] if source is None else [source])]
    if len(names) != 1 or "/" in names[0]:
        raise ValueError('--whole-source: pass one source, such as `redrive state pause crm --whole-source --because "..."`')
    return names[0]


def _steer(
    verb: Steer, asked: Callable[[], Selection], because: str, yes: bool, most: int | None, dry_run: bool, actor: str | None,
    where: str | None, as_json: bool, grant: int | None = None,
) -> None:  # fmt: skip
    with operator(where, actor, app_first=True) as ops:
        if not because.strip():
            raise ValueError("--because: pass a reason")
        chosen = ops.partitions.chosen(verb, asked())
        if dry_run or not chosen.count:
            done = Act(0)
        else:
            agreed(chosen, yes=yes, most=most)
            done = ops.partitions.steer(chosen, because=because, grant=grant)
        if as_json:
            print_json(
                {"act": verb, "matched": chosen.count, "done": done.count, "skipped": dict(done.skipped), "audit": done.audit}
            )
        elif dry_run or not chosen.count:
            some = "" if chosen.changes == chosen.count else f"{chosen.changes:,} of "
            would = f"Would be {PAST[verb]}: {some}{partitions(chosen.count)}"
            show(console(), Text(would if chosen.count else "No partition matches."))
        else:
            show(console(), Text(f"{partitions(done.count)} {PAST[verb]}"))
            for name, why in list(done.skipped.items())[:10]:
                show(console(), Text(f"Skipped {name}: {why}", style="yellow"))
            if len(done.skipped) > 10:
                show(console(), Text(f"… {len(done.skipped) - 10:,} more skipped", style="yellow"))
        raise typer.Exit(0 if dry_run or done.count == chosen.count > 0 else NOT_DONE)
