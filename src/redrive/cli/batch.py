"""`redrive batch`: items of batches: how they stand, which were given up, and how those are sent again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ..core.amount import amount
from ..ops import own_items
from ..ops.actor import user
from ..ops.batch import Batch, GivenUp, Reopened, Reopening
from ..ops.document import document
from .confirm import confirmed
from .fit import Column, fitted
from .followup import spelled, then
from .moments import ago, utc
from .options import INTERRUPTED, NOT_DONE, Actor, AsJson, Because, Since, Where, complaints, operator, option, since_of
from .output import complain, console, print_json, show

app = typer.Typer(no_args_is_help=True, help="Items of batches: how they stand, which were given up; open those again.")

Name = Annotated[str, typer.Argument(metavar="BATCH", help="The name that app.items(...) was given.")]
Only = Annotated[str | None, option("--batch", "NAME", "Only of this batch.")]
Own = Annotated[str | None, option("--items", "MODULE:OBJECT", "A store of your own, such as a TableItems, not the ledger's.")]
Reason = Annotated[str | None, option("--reason", "TEXT", "Only with this in the reason.")]


@app.command()
def status(where: Where = None, as_json: AsJson = False) -> None:
    """Show for each batch how many items wait, were given up, or arrived after rejections.

    Exit status: 0, shown, also where there are none; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found = ops.batches()
        if as_json:
            print_json(document(found))
            return
        out = console()
        show(out, _batches(found, ops.now(), out.width) if found else Text("no item of any batch was ever rejected"))


def _batches(found: Sequence[Batch], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("batch", least=12),
        Column("waiting", number=True),
        Column("given up", number=True),
        Column("arrived", number=True, leave=1),
        Column("rejections", number=True, leave=2),
        Column("uncharged", number=True, leave=3),
        Column("changed"),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "batch": one.name,
            "waiting": f"{one.waiting:,}",
            "given up": Text(f"{one.given_up:,}", style="red" if one.given_up else ""),
            "arrived": f"{one.acknowledged:,}",
            "rejections": f"{one.rejections:,}",
            "uncharged": f"{one.uncharged:,}",
            "changed": ago(one.updated_at, now),
        }
        for one in found
    ]
    return Group(
        fitted(columns, rows, width), "", Text(spelled("`redrive batch giveups` lists those that were given up."), style="dim")
    )


@app.command()
def giveups(
    batch: Only = None,
    reason: Reason = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 50,
    own: Own = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List items that were given up, the newest first. Of a store of your own (--items): by their ids.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    if own is not None:
        if since is not None:
            raise typer.BadParameter("a store of your own keeps no times; leave it out", param_hint="--since")
        _own_giveups(own, limit, reason, as_json)
        return
    with operator(where) as ops:
        found = ops.giveups(batch=batch, reason=reason, since=since_of(since), limit=limit)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            show(out, _giveups(found, ops.now(), out.width, full=len(found) == limit))
        else:
            narrowed = any(each is not None for each in (batch, reason, since))
            show(out, Text("no item that was given up matches" if narrowed else "no item was given up"))


def _own_giveups(source: str, limit: int, reason: str | None, as_json: bool) -> None:
    with complaints():
        found = own_items.given_up(source, limit, reason=reason)
    if as_json:
        print_json(document(found))
        return
    out = console()
    if not found:
        show(out, Text("no item was given up" if reason is None else "no item that was given up matches"))
        return
    columns = [Column("item", least=12), Column("rejected", number=True)]
    if any(item.reason is not None for item in found):
        columns.append(Column("reason", least=14, wants=28, cut=True))
    rows: list[dict[str, str | Text]] = [
        {"item": item.item, "rejected": str(item.attempts), "reason": _short(item.reason or "–", 200)} for item in found
    ]
    show(out, fitted(columns, rows, out.width))


def _giveups(found: Sequence[GivenUp], now: datetime, width: int, *, full: bool) -> RenderableType:
    columns = [
        Column("batch", least=8),
        Column("item", least=12),
        Column("rejected", number=True),
        Column("given up"),
        Column("UTC", leave=1),
        Column("reason", least=14, wants=28, cut=True),
    ]
    rows = [
        {
            "batch": one.batch,
            "item": one.item,
            "rejected": str(one.attempts),
            "given up": ago(one.given_up_at, now),
            "UTC": utc(one.given_up_at),
            "reason": " ".join((one.reason or "–").split()),
        }
        for one in found
    ]
    reopen = then('redrive batch reopen BATCH ITEM --because "..."')
    hint = "More may match: raise --limit, or narrow it down." if full else f"Fixed? → {reopen}"
    return Group(fitted(columns, rows, width), "", Text(hint, style="dim"))


@app.command()
def reopen(
    batch: Name,
    because: Because,
    items: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Items by their ids.", show_default=False)] = None,
    reason: Reason = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 100,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask; needs --max.")] = False,
    most: Annotated[
        int | None,
        typer.Option("--max", min=0, metavar="N", help="With --yes: do nothing if there are more.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    own: Own = None,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Let items that were given up be sent again, with all their attempts. Recorded in the audit.

    By their ids, or by reason or since; the latter asks for confirmation: type the number, or say --yes --max N. In a store of
    your own (--items) by their ids; the counters there stay as they are. That store needs no ledger: without one, nothing is
    recorded in an audit log, and the output says so.

    Exit status: 0, all reopened; 1, some or none of them (they are listed, with why); 2, a wrong option, or no selection; 3, the
    ledger cannot be reached or has another schema; 130, interrupted.
    """
    if own is not None:
        _reopen_own(own, batch, items or (), because, dry_run=dry_run, actor=actor, where=where, as_json=as_json)
    with operator(where, actor) as ops:
        plan = ops.reopen(batch, items=items or (), reason=reason, since=since_of(since), limit=limit)
        ops.reopening(plan, because=because)  # refuses an empty reason, before anybody is asked anything
        _show_plan(plan, dry_run=dry_run, as_json=as_json)
        if not items:
            confirmed(plan, yes=yes, most=most)
        _carry_out(plan, ops.reopening(plan, because=because), as_json=as_json)


def _reopen_own(
    own: str, batch: str, items: Sequence[str], because: str, *, dry_run: bool, actor: str | None, where: str | None,
    as_json: bool,
) -> NoReturn:  # fmt: skip
    """Reopen items in a store of the user's own: recorded where there is a ledger, and said where there is none."""
    with complaints():
        plan = own_items.planned(own, batch, items=items)
        if not because.strip():
            raise ValueError(f"because= must say why: {because!r}")
        if own_items.has_ledger(where):
            with operator(where, actor) as ops:
                _show_plan(plan, dry_run=dry_run, as_json=as_json)
                _carry_out(plan, ops.reopening(plan, because=because, store=own), as_json=as_json)
        _show_plan(plan, dry_run=dry_run, as_json=as_json)
        complain("no ledger found: this is not recorded in an audit log; pass --ledger to record it")
        steps = own_items.applied(None, own, plan, actor=actor or user(), because=because)
        _carry_out(plan, steps, as_json=as_json)


def _show_plan(plan: Reopening, *, dry_run: bool, as_json: bool) -> None:
    """Show what is to be done. Ends the command where that is all, or nothing."""
    if not as_json:
        show(console(), _plan(plan))
    if dry_run or not plan.count:
        if as_json:
            print_json({"plan": document(plan), "done": [], "skipped": document(plan.skipped)})
        raise typer.Exit(NOT_DONE if plan.skipped else 0)


def _carry_out(plan: Reopening, steps: Iterator[Reopened], *, as_json: bool) -> NoReturn:
    """Reopen, show what was reopened, and end the command."""
    done: list[str] = []
    skipped = dict(plan.skipped)
    ended = 0
    try:
        for step in steps:
            done += step.done
            skipped |= step.skipped
    except KeyboardInterrupt:
        complain("interrupted: whole steps are done and in the audit, the rest is as it was; run it again to go on")
        ended = INTERRUPTED
    if as_json:
        print_json({"plan": document(plan), "done": done, "skipped": skipped})
    else:
        _say(done, {one: why for one, why in skipped.items() if one not in plan.skipped})
    raise typer.Exit(ended or (NOT_DONE if skipped else 0))


def _plan(plan: Reopening) -> RenderableType:
    lines: list[RenderableType] = []
    if plan.count:
        most = ", ".join(f"{_short(reason)} ×{count:,}" for reason, count in list(plan.reasons.items())[:4])
        lines.append(Text(f"To reopen: {_many(plan.count)} of {plan.batch} ({most}{', …' if len(plan.reasons) > 4 else ''})"))
    elif not plan.skipped:
        lines.append(Text(f"nothing to reopen: no item of {plan.batch} that was given up matches"))
    if plan.more:
        lines.append(Text("More match, beyond --limit.", style="yellow"))
    lines += [Text(f"Not {item}: {why}", style="yellow") for item, why in plan.skipped.items()]
    return Group(*lines)


def _say(done: Sequence[str], skipped: Mapping[str, str]) -> None:
    out = console()
    if len(done) <= 10:
        for item in done:
            show(out, Text(f"Reopened: {item}"))
    else:
        show(out, Text(f"Reopened: {_many(len(done))}"))
    for item, why in skipped.items():
        show(out, Text(f"Not {item}: {why}", style="yellow"))


def _short(reason: str, longest: int = 40) -> str:
    line = " ".join(reason.split()) or "no reason"
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _many(count: int) -> str:
    return amount(count, "item")
