"""`redrive batch`: items of batches: how they stand, which were given up, and how those are sent again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops import batch_items
from ...ops.actor import user
from ...ops.batch_items import Reopened, Reopening
from ...ops.batches import Batch, GivenUp
from ...ops.operator import Operator
from ...ops.render import document
from ..apply.confirm import confirmed
from ..command import Commands
from ..options import (
    INTERRUPTED,
    NO_LEDGER,
    NOT_DONE,
    Actor,
    AsJson,
    Because,
    Since,
    Where,
    complaints,
    operator,
    option,
    since_of,
)
from ..render.details import showing
from ..render.moments import ago, utc
from ..render.output import complain, console, print_json, show
from ..render.suggestions import spelled, then
from ..render.table import Column, fitted

app = Commands(help="List and reopen rejected batch items.")

Name = Annotated[str, typer.Argument(metavar="BATCH", help="Name passed to app.items(), or with --items the name of the table")]
Only = Annotated[str | None, option("--batch", "NAME", "Only this batch")]
Own = Annotated[
    str | None, option("--items", "MODULE:OBJECT", "Item store in your code, such as a TableItems (default: the ledger)")
]
Reason = Annotated[str | None, option("--reason", "TEXT", "Only reasons that contain this text")]


@app.command()
def status(where: Where = None, as_json: AsJson = False) -> None:
    """Show the state of each batch.

    Only items that were rejected at least once are counted. "accepted later" are items that were
    accepted after a rejection. "not counted" are rejections that do not count as attempts: those in
    outages, and those of whole groups with split=.

    Examples:
        redrive batch status
        redrive batch status --json

    Exit codes:
        0: shown, also when there are none
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        found = ops.batches.find()
        if as_json:
            print_json(document(found))
            return
        out = console()
        show(out, _batches(found, ops.now(), out.width) if found else Text("No rejected items."))


def _batches(found: Sequence[Batch], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("batch", least=12),
        Column("queued", number=True),
        Column("given up", number=True),
        Column("accepted later", number=True, leave=1),
        Column("rejections", number=True, leave=2),
        Column("not counted", number=True, leave=3),
        Column("updated"),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "batch": one.name,
            "queued": f"{one.waiting:,}",
            "given up": Text(f"{one.given_up:,}", style="red" if one.given_up else ""),
            "accepted later": f"{one.acknowledged:,}",
            "rejections": f"{one.rejections:,}",
            "not counted": f"{one.uncharged:,}",
            "updated": ago(one.updated_at, now),
        }
        for one in found
    ]
    return Group(fitted(columns, rows, width), "", Text(spelled("`redrive batch giveups` lists given-up items."), style="dim"))


@app.command()
def giveups(
    batch: Only = None,
    reason: Reason = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of items")] = 50,
    own: Own = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List given-up batch items.

    Newest first. Items of your own store (--items) are sorted by ID.

    Examples:
        redrive batch giveups
        redrive batch giveups --batch readings --since 1d
        redrive batch giveups --items wiring:items

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    if own is not None:
        if since is not None:
            raise typer.BadParameter("not supported with --items, because your own store has no times", param_hint="--since")
        if batch is not None:
            raise typer.BadParameter("cannot be used with --items, which is one store", param_hint="--batch")
        _own_giveups(own, limit, reason, as_json)
        return
    with _operator(where) as ops:
        found = ops.batches.given_up(batch=batch, reason=reason, since=since_of(since), limit=limit)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            show(out, _giveups(found, ops.now(), out.width, full=len(found) == limit))
        else:
            narrowed = any(each is not None for each in (batch, reason, since))
            show(out, Text("No given-up item matches." if narrowed else "No given-up items."))


def _own_giveups(source: str, limit: int, reason: str | None, as_json: bool) -> None:
    with complaints():
        found = batch_items.given_up(source, limit + 1, reason=reason)
    is_cut, found = len(found) > limit, found[:limit]
    if as_json:
        print_json(document(found))
        return
    out = console()
    if not found:
        show(out, Text("No given-up items." if reason is None else "No given-up item matches."))
        return
    columns = [Column("item", least=12), Column("rejected", number=True)]
    if any(item.reason is not None for item in found):
        columns.append(Column("reason", least=14, wants=28, cut=True))
    rows: list[dict[str, str | Text]] = [
        {"item": item.item, "rejected": str(item.attempts), "reason": _short(item.reason or "–", 200)} for item in found
    ]
    reopen = f'redrive batch reopen BATCH ITEM --items {source} --because "..."'
    show(out, Group(fitted(columns, rows, out.width), "", _hints(len(found), reopen, is_cut=is_cut)))


def _hints(count: int, reopen: str, *, is_cut: bool) -> Text:
    """Say that the list is cut, if it is, and how its items are reopened."""
    lines = [showing(count)] if is_cut else []
    return Text("\n".join([*lines, f"→ {then(reopen)}"]), style="dim")


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
    hints = _hints(len(found), 'redrive batch reopen BATCH ITEM --because "..."', is_cut=full)
    return Group(fitted(columns, rows, width), "", hints)


@contextmanager
def _operator(where: str | None, actor: str | None = None) -> Iterator[Operator]:
    """Open the ledger. Without one, point to --items as well."""
    try:
        with operator(where, actor) as ops:
            yield ops
    except typer.Exit as ended:
        if ended.exit_code == NO_LEDGER and not batch_items.has_ledger(where):
            complain("for items in your own table, pass --items module:object")
        raise


@app.command()
def reopen(
    batch: Name,
    because: Because,
    items: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="IDs of items", show_default=False)] = None,
    reason: Reason = None,
    since: Since = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of items")] = 100,
    yes: Annotated[bool, typer.Option("--yes", help="No confirmation prompt (needs --max)")] = False,
    most: Annotated[
        int | None,
        typer.Option("--max", min=0, metavar="N", help="Upper bound with --yes, above which nothing is done", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan only, without any change")] = False,
    own: Own = None,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Reopen given-up batch items.

    A reopened item is sent again, with all its attempts. Select by ID, or by --reason or --since. A
    selection without IDs needs confirmation: type the number at the prompt, or pass --yes --max N.

    Items of your own store (--items) are selected by ID, and its counters stay. BATCH is then the
    name of the table. That store needs no ledger. Without a ledger nothing is recorded in an audit
    log, and the output says so.

    Examples:
        redrive batch reopen readings r-17 r-18 --because "device fixed"
        redrive batch reopen readings --reason "bad unit" --yes --max 50 --because "INC-42"

    Exit codes:
        0: all reopened
        1: some or none reopened; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted
    """
    if own is not None:
        for name, value in (("--reason", reason), ("--since", since)):
            if value is not None:
                raise typer.BadParameter("cannot be used with --items; pass the IDs of the items", param_hint=name)
        _reopen_own(own, batch, items or (), because, dry_run=dry_run, actor=actor, where=where, as_json=as_json)
    with _operator(where, actor) as ops:
        plan = ops.batches.plan_reopen(batch, items=items or (), reason=reason, since=since_of(since), limit=limit)
        ops.batches.reopen(plan, because=because)  # refuses an empty reason, before anybody is asked anything
        _show_plan(plan, dry_run=dry_run, as_json=as_json)
        if not items:
            confirmed(plan, yes=yes, most=most)
        _carry_out(plan, ops.batches.reopen(plan, because=because), as_json=as_json)


def _reopen_own(
    own: str, batch: str, items: Sequence[str], because: str, *, dry_run: bool, actor: str | None, where: str | None,
    as_json: bool,
) -> NoReturn:  # fmt: skip
    """Reopen items in a store of the user's own: recorded where there is a ledger, and said where there is none."""
    with complaints():
        plan = batch_items.plan_reopen(own, batch, items=items)
        if not because.strip():
            raise ValueError("--because: pass a reason")
        if batch_items.has_ledger(where):
            with operator(where, actor) as ops:
                _show_plan(plan, dry_run=dry_run, as_json=as_json)
                _carry_out(plan, ops.batches.reopen(plan, because=because, store=own), as_json=as_json)
        _show_plan(plan, dry_run=dry_run, as_json=as_json)
        complain("ledger: not found, so this is not recorded in an audit log; pass --ledger to record it")
        steps = batch_items.reopen(None, own, plan, actor=actor or user(), because=because)
        _carry_out(plan, steps, as_json=as_json)


def _show_plan(plan: Reopening, *, dry_run: bool, as_json: bool) -> None:
    """Show what is to be done. Ends the command where that is all, or nothing."""
    if not as_json:
        show(console(), _plan(plan))
    if dry_run or not plan.count:
        if as_json:
            print_json({"plan": document(plan), "done": [], "skipped": document(plan.skipped)})
        elif dry_run:
            show(console(), Text("Dry run: nothing was changed."))
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
        complain("interrupted; completed steps stay and are in the audit log, repeat the command for the rest")
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
        lines.append(Text(f"No given-up item of {plan.batch} matches."))
    if plan.more:
        lines.append(Text("More match; use --limit for more.", style="yellow"))
    lines += [Text(f"Skipped {item}: {why}", style="yellow") for item, why in plan.skipped.items()]
    return Group(*lines)


def _say(done: Sequence[str], skipped: Mapping[str, str]) -> None:
    out = console()
    if len(done) <= 10:
        for item in done:
            show(out, Text(f"Reopened: {item}"))
    else:
        show(out, Text(f"Reopened: {_many(len(done))}"))
    for item, why in skipped.items():
        show(out, Text(f"Skipped {item}: {why}", style="yellow"))


def _short(reason: str, longest: int = 40) -> str:
    line = " ".join(reason.split()) or "no reason"
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _many(count: int) -> str:
    return pluralise(count, "item")
