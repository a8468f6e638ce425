"""`redrive batch`: the state of batches, and given-up items that are listed and reopened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, NoReturn

import typer
from rich.text import Text

from ...core.text import pluralise
from ...ops import batch_items
from ...ops.batch_items import OwnItem, Reopened, Reopening
from ...ops.batches import Batch, GivenUp
from ...ops.context import user
from ...ops.operator import Operator
from ...ops.render import ago, utc
from ..apply.confirm import Confirmation, require_reason, show_done, show_plan, show_skipped
from ..command import CommandGroup
from ..errors import INTERRUPTED, NO_LEDGER, NOT_DONE, complain, exit_on_error, refuse_option
from ..options import (
    Because,
    ReadOptions,
    Since,
    WriteOptions,
    argument,
    limit_option,
    open_operator,
    option,
    time_of,
)
from ..render import Column, print_json, print_rows, show, showing, suggestion, top_counts
from ..suggestions import expand_commands, quote_argument

app = CommandGroup(help="List and reopen rejected batch items.")

Store = Annotated[
    str | None,
    option(
        "--items",
        "MODULE:OBJECT",
        "Item store in your code, such as a TableItems (default: the ledger)",
    ),
]
Reason = Annotated[str | None, option("--reason", "TEXT", "Only reasons that contain this text")]
Limit = Annotated[int, limit_option("items")]
MAX_REASON_CHARS = 200
"""Characters of a reason in a list. The terminal cuts it further."""
MAX_COUNTED_REASON_CHARS = 40


@app.command()
def status(*, options: ReadOptions) -> None:
    """Show the state of each batch.

    It shows batches in the ledger. For your own store, `redrive batch giveups` has --items.

    Only items that were rejected at least once are counted. "pending" are items that the next call
    sends again. "accepted later" are items that were accepted after a rejection. "not counted" are
    rejections that do not count as attempts: those in outages, and those of whole groups with
    split=.

    Examples:
        redrive batch status
        redrive batch status --json

    Exit codes:
        0: shown, also when there are none
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        batches, now = ops.batches.find(), ops.now()
    hint = expand_commands("`redrive batch giveups` lists given-up items.")
    empty = "No rejected items."
    print_rows(batches, options.as_json, _batch_columns(now), empty=empty, below=[hint])


def _batch_columns(now: datetime) -> list[Column[Batch]]:
    return [
        Column("batch", lambda batch: batch.name, min_width=12),
        Column("pending", lambda batch: f"{batch.waiting:,}", is_number=True),
        Column("given up", _given_up_count, is_number=True),
        Column(
            "accepted later", lambda batch: f"{batch.acknowledged:,}", is_number=True, drop_order=1
        ),
        Column("rejections", lambda batch: f"{batch.rejections:,}", is_number=True, drop_order=2),
        Column("not counted", lambda batch: f"{batch.uncharged:,}", is_number=True, drop_order=3),
        Column("updated", lambda batch: ago(batch.updated_at, now)),
    ]


def _given_up_count(batch: Batch) -> Text:
    return Text(f"{batch.given_up:,}", style="red" if batch.given_up else "")


@app.command()
def giveups(
    *,
    batch: Annotated[str | None, option("--batch", "NAME", "Only this batch")] = None,
    reason: Reason = None,
    since: Since = None,
    limit: Limit = 50,
    store: Store = None,
    options: ReadOptions,
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
    if store is not None:
        if since is not None:
            problem = "not supported with --items, because your own store has no times"
            refuse_option("--since", problem)
        if batch is not None:
            refuse_option("--batch", "cannot be used with --items, which is one store")
        _store_giveups(store, limit, reason, options.as_json)
        return
    with _open_operator(options) as ops:
        items = ops.batches.given_up(batch=batch, reason=reason, since=time_of(since), limit=limit)
        now = ops.now()
    is_filtered = any(value is not None for value in (batch, reason, since))
    empty = "No given-up item matches." if is_filtered else "No given-up items."
    reopen = _reopen_command(items[0].batch, items[0].item) if items else None
    notes = [showing(limit) if len(items) == limit else None, reopen]
    print_rows(items, options.as_json, _item_columns(now), empty=empty, below=notes)


def _reopen_command(batch: str, item: str, options: str = "") -> Text:
    """Suggest the command that reopens one of the listed items."""
    which = f"{quote_argument(batch)} {quote_argument(item)}"
    if batch.startswith("-") or item.startswith("-"):  # not options
        return suggestion(f'redrive batch reopen --because "..."{options} -- {which}')
    return suggestion(f'redrive batch reopen {which}{options} --because "..."')


def _item_columns(now: datetime) -> list[Column[GivenUp]]:
    return [
        Column("batch", lambda item: item.batch, min_width=8),
        Column("item", lambda item: item.item, min_width=12),
        Column("rejected", lambda item: str(item.attempts), is_number=True),
        Column("given up", lambda item: ago(item.given_up_at, now)),
        Column("UTC", lambda item: utc(item.given_up_at), drop_order=1),
        Column(
            "reason",
            lambda item: " ".join((item.reason or "–").split()),
            min_width=14,
            wanted_width=28,
            truncate=True,
        ),
    ]


STORE_COLUMNS: list[Column[OwnItem]] = [
    Column("item", lambda item: item.item, min_width=12),
    Column("rejected", lambda item: str(item.attempts), is_number=True),
    Column(
        "reason",
        lambda item: _cut(item.reason or "–", MAX_REASON_CHARS),
        min_width=14,
        wanted_width=28,
        truncate=True,
    ),
]


def _store_giveups(store: str, limit: int, reason: str | None, as_json: bool) -> None:
    """List given-up items of a store in the user's code."""
    with exit_on_error():
        items = batch_items.given_up(store, limit + 1, reason=reason)
    is_cut, items = len(items) > limit, items[:limit]
    has_reasons = any(item.reason is not None for item in items)
    columns = STORE_COLUMNS if has_reasons else STORE_COLUMNS[:-1]
    empty = "No given-up items." if reason is None else "No given-up item matches."
    reopen = None
    if items:
        reopen = _reopen_command(batch_items.batch_name(store), items[0].item, f" --items {store}")
    notes = [showing(limit) if is_cut else None, reopen]
    print_rows(items, as_json, columns, empty=empty, below=notes)


@contextmanager
def _open_operator(options: ReadOptions | WriteOptions) -> Iterator[Operator]:
    """Open the ledger. If there is none, also suggest --items."""
    try:
        with open_operator(options) as ops:
            yield ops
    except typer.Exit as ended:
        if ended.exit_code == NO_LEDGER and not batch_items.has_ledger(options.target):
            complain("for items in your own table, pass --items module:object")
        raise


@app.command()
def reopen(
    *,
    batch: Annotated[
        str,
        typer.Argument(
            metavar="BATCH",
            help="Name passed to app.items(), or with --items the name of the table",
        ),
    ],
    because: Because,
    items: Annotated[list[str] | None, argument("ITEM", "IDs of items")] = None,
    reason: Reason = None,
    since: Since = None,
    limit: Limit = 100,
    confirmation: Confirmation,
    store: Store = None,
    options: WriteOptions,
) -> None:
    """Reopen given-up batch items.

    A reopened item is sent again. In the ledger, it has all its attempts again. Select by ID, or by
    --reason or --since. A selection without IDs needs confirmation: type the number at the prompt,
    or pass --yes --max N.

    In your own store (--items), the counter of an item is not reset. An item without attempts left
    has one more. Select by ID. BATCH is the name of the table. That store needs no ledger. Without
    a ledger nothing is recorded in an audit log, and the output says so.

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
    dry_run, as_json = confirmation.dry_run, options.as_json
    if store is not None:
        for name, value in (("--reason", reason), ("--since", since)):
            if value is not None:
                refuse_option(name, "cannot be used with --items; pass the IDs of the items")
        _reopen_in_store(store, batch, items or (), because, dry_run=dry_run, options=options)
    with _open_operator(options) as ops:
        plan = ops.batches.plan_reopen(
            batch, items=items or (), reason=reason, since=time_of(since), limit=limit
        )
        ops.batches.reopen(plan, because=because)  # refuses an empty reason before the prompt
        _show_plan(plan, dry_run=dry_run, as_json=as_json)
        if not items:
            confirmation.require(plan, matched=plan.matched)
        _reopen(plan, ops.batches.reopen(plan, because=because), as_json=as_json)


def _reopen_in_store(
    store: str,
    batch: str,
    items: Sequence[str],
    because: str,
    *,
    dry_run: bool,
    options: WriteOptions,
) -> NoReturn:
    """Reopen items of a store in the user's code. The audit log needs a ledger."""
    with exit_on_error(changes=True):
        plan = batch_items.plan_reopen(store, batch, items=items)
        require_reason(because)
        if batch_items.has_ledger(options.target):
            with open_operator(options) as ops:
                _show_plan(plan, dry_run=dry_run, as_json=options.as_json)
                steps = ops.batches.reopen(plan, because=because, store=store)
                _reopen(plan, steps, as_json=options.as_json)
        _show_plan(plan, dry_run=dry_run, as_json=options.as_json)
        complain(
            "ledger: not found, so this is not recorded in an audit log; pass --ledger to record it"
        )
        actor = options.actor or user()
        steps = batch_items.reopen(None, store, plan, actor=actor, because=because)
        _reopen(plan, steps, as_json=options.as_json)


def _show_plan(plan: Reopening, *, dry_run: bool, as_json: bool) -> None:
    """Print the plan. Ends the command after a dry run, or if there is nothing to reopen."""
    if not as_json:
        reasons: Counter[str] = Counter()
        for reason, count in plan.reasons.items():
            reasons[_cut(reason, MAX_COUNTED_REASON_CHARS)] += count
        summary = f"{pluralise(plan.count, 'item')} of {plan.batch} ({top_counts(reasons)})"
        show_plan(plan, summary, empty=f"No given-up item of {plan.batch} matches.")
    if dry_run or not plan.count:
        if as_json:
            print_json({"plan": plan, "done": [], "skipped": plan.skipped})
        elif dry_run:
            show("Dry run: nothing was changed.")
        raise typer.Exit(NOT_DONE if plan.skipped else 0)


def _reopen(plan: Reopening, steps: Iterator[Reopened], *, as_json: bool) -> NoReturn:
    """Reopen the items of a plan, print the outcomes and end the command."""
    done: list[str] = []
    skipped = dict(plan.skipped)
    is_interrupted = False
    try:
        for step in steps:
            done += step.done
            skipped |= step.skipped
    except KeyboardInterrupt:
        complain(
            "interrupted; completed steps stay and are in the audit log, repeat the command for"
            " the rest"
        )
        is_interrupted = True
    if as_json:
        print_json({"plan": plan, "done": done, "skipped": skipped})
    else:
        lines = [f"Reopened: {item}" for item in done]
        show_done(lines, summary=f"Reopened: {pluralise(len(done), 'item')}")
        show_skipped({item: skipped[item] for item in skipped if item not in plan.skipped})
    raise typer.Exit(INTERRUPTED if is_interrupted else NOT_DONE if skipped else 0)


def _cut(reason: str, max_chars: int) -> str:
    line = " ".join(reason.split()) or "no reason"
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"
