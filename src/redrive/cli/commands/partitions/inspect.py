"""`redrive state inspect`, `customers`, `failures`, `history` and `explain`: what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ....core.text import pluralise
from ....ops.operator import Operator
from ....ops.partitions.calendar import STATUSES_WORST_FIRST
from ....ops.partitions.operations import PartitionView
from ....ops.partitions.raw_data import Lost, RawState
from ....ops.partitions.selection import PartitionFilter
from ....ops.render import ago, document
from ...errors import NOT_DONE, fail
from ...options import ReadOptions, argument, flag, limit_option, open_operator, option
from ...render import (
    Column,
    bullets,
    console,
    dim,
    print_json,
    print_result,
    responsive_table,
    show,
    showing,
    suggestion,
    top_counts,
)
from ...suggestions import expand_commands, quote_argument
from .calendar import SIGNS, Unit, customer_map, heat_map
from .render import explanation_view, history_view, partition_state, pause_text, rejection_text
from .selection import FailedOptions, FirstDay, LastDay, PartitionArgument, PartitionOptions

STORED = "Partitions are stored when they are first queued."
CALENDAR_FILTERS = ("customers", "shades", "reason", "min_attempts", "lane", "keys")
"""Parts of a selection that a calendar cannot show."""
Limit = Annotated[int, limit_option("partitions")]


def inspect(
    *,
    which: PartitionOptions,
    calendar: Annotated[
        bool, flag("--calendar", "Heat map of datasets by day (default: the last 8 weeks)")
    ] = False,
    by: Annotated[
        Unit | None,
        typer.Option(
            "--by",
            help="Unit of a calendar column (default: the finest that fits)",
            show_default=False,
        ),
    ] = None,
    lost: Annotated[
        bool,
        flag("--lost", "Only accepted partitions whose raw data is missing or of another size"),
    ] = False,
    limit: Limit = 50,
    after: Annotated[
        int,
        typer.Option(
            "--after",
            min=0,
            metavar="N",
            help="Number of the last partition on the previous page",
            show_default=False,
        ),
    ] = 0,
    options: ReadOptions,
) -> None:
    """Show the state of partitions.

    Without a selection, shows the number of partitions by dataset and state. With a selection,
    lists the partitions. --calendar shows a heat map. --lost checks the store and lists accepted
    partitions whose raw data is missing or of another size.

    The calendar and lists do not check raw data. Partitions that are named in full are checked if
    the app is known (--ledger module:app).

    Examples:
        redrive state inspect
        redrive state inspect crm/orders --status failed
        redrive state inspect crm --calendar --since 2026-06-01
        redrive state inspect crm/acme/orders/2026-06-01 --ledger shop:app

    Exit codes:
        0: shown, also when there are none
        1: with --lost, the store is unknown or not reachable
        2: invalid option, or unknown source or query
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        selection = which.selection()
        if lost:
            partitions = ops.partitions.lost(selection, after=after, limit=limit)
            _show_lost(partitions, options.as_json, is_cut=len(partitions) == limit)
        elif calendar:
            _show_calendar(ops, selection, by, options.as_json)
        elif selection.everything and not after:
            _show_overview(ops, options.as_json)
        else:
            listed = ops.partitions.inspect(selection, after=after, limit=limit)
            raw = None if selection.keys is None else ops.partitions.raw_states(listed)
            cut = _next_page(listed) if len(listed) == limit else None
            empty = "" if listed else f"{ops.partitions.describe_no_match(selection)} {STORED}"
            _show_partitions(ops, listed, options.as_json, cut, empty=empty, raw=raw)


def customers(
    *,
    dataset: Annotated[str, argument("DATASET", "Dataset, such as crm/orders")],
    since: FirstDay = None,
    until: LastDay = None,
    after: Annotated[
        str | None, option("--after", "NAME", "Last customer of the previous page")
    ] = None,
    limit: Annotated[int, limit_option("customers")] = 50,
    options: ReadOptions,
) -> None:
    """Show the days of a dataset by customer.

    By default the last 8 weeks. Customers without a partition in this range are not listed.

    Examples:
        redrive state customers crm/orders
        redrive state customers crm/orders --since 2026-06-01 --until 2026-06-30
        redrive state customers crm/orders --after acme --json

    Exit codes:
        0: shown, also when there are none
        2: invalid option, or unknown source or query
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        selection = ops.partitions.selection(dataset)
        source, query = selection.source, selection.query_name
        is_dataset = selection == PartitionFilter(source=source, query_name=query)
        if source is None or query is None or not is_dataset:
            raise ValueError(f"{dataset!r}: not a dataset; pass source/query, such as crm/orders")
        grid = ops.partitions.customers(source, query, since, until, after=after or "", limit=limit)
    if options.as_json:
        print_json(grid)
    elif not grid.rows:
        show(f"No customers with partitions from {grid.since} to {grid.until}.")
    else:
        show(customer_map(grid, console().width))
        if grid.next_after is not None:
            words = f"{quote_argument(dataset)} --since {grid.since} --until {grid.until}"
            following = f"redrive state customers {words} --after {quote_argument(grid.next_after)}"
            show(suggestion(following))


def failures(
    *,
    which: FailedOptions,
    terminal: Annotated[bool, flag("--terminal", "Only partitions that gave up")] = False,
    limit: Limit = 50,
    options: ReadOptions,
) -> None:
    """List failed partitions.

    Latest first. Includes accepted partitions whose newer run was rejected.

    Examples:
        redrive state failures
        redrive state failures crm/orders --reason row_count
        redrive state failures --terminal

    Exit codes:
        0: listed, also when there are none
        2: invalid option, or unknown source or query
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        selection = which.selection()
        failed = ops.partitions.failures(selection, terminal=terminal, limit=limit)
        cut = showing(limit) if len(failed) == limit else None
        has_filter = not selection.everything
        empty = "No failed partition matches." if has_filter else "No failed partitions."
        _show_partitions(ops, failed, options.as_json, cut, empty=empty)


def history(*, partition: PartitionArgument, options: ReadOptions) -> None:
    """Show every attempt at a partition.

    Newest first, with the verdict, the measured value and the limit of each check.

    Examples:
        redrive state history crm/acme/orders/2026-06-01

    Exit codes:
        0: shown
        1: the partition is not stored
        2: invalid option or partition, or unknown source or query
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        attempts = ops.partitions.history(partition)
    if attempts is None:
        hint = f"redrive state explain {quote_argument(partition)}"
        fail(NOT_DONE, f"{partition}: not stored; it was never queued", hint)
    print_result(attempts, options.as_json, history_view)


def explain(*, partition: PartitionArgument, options: ReadOptions) -> None:
    """Explain why a partition is not running.

    Shows its state, the cause, the next attempt and the commands that apply.

    Examples:
        redrive state explain crm/acme/orders/2026-06-01

    Exit codes:
        0: shown, also when the partition is not stored
        2: invalid option or partition, or unknown source or query
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options, app_first=True) as ops:
        explained = ops.partitions.explain(partition)
    print_result(explained, options.as_json, explanation_view)


def _show_calendar(
    ops: Operator, selection: PartitionFilter, by: Unit | None, as_json: bool
) -> None:
    if any(getattr(selection, name) is not None for name in CALENDAR_FILTERS):
        reason = "because a cell has all customers and states"
        raise ValueError(f"--calendar: takes only source, query and dates, {reason}")
    dataset = {"source": selection.source, "query": selection.query_name}
    calendar = ops.partitions.calendar(selection.since, selection.until, **dataset)
    if as_json:
        print_json(calendar)
    elif calendar.rows:
        show(heat_map(calendar, console().width, by=by))
    else:
        show(f"No partitions from {calendar.since} to {calendar.until}.")


def _show_lost(partitions: Sequence[Lost], as_json: bool, *, is_cut: bool) -> None:
    if as_json:
        print_json([document(lost.facts) | {"says": lost.says} for lost in partitions])
        return
    if not partitions:
        show("No missing raw data.")
        return
    items: list[tuple[RenderableType, RenderableType]] = []
    for lost in partitions:
        items.append((Text("✗", style="red"), Text(str(lost.facts.partition))))
        items.append(("", dim(lost.says)))
    is_single = len(partitions) == 1
    which = quote_argument(str(partitions[0].facts.partition)) if is_single else "PARTITION ..."
    extract = f'`redrive state reprocess {which} --because "..."` extracts again'
    restore = '`redrive state rollback PARTITION --because "..."` restores an earlier run'
    hint = expand_commands(f"{extract}; {restore}.")
    cut = [dim(_next_page([lost.facts for lost in partitions]))] if is_cut else []
    count = f"{pluralise(len(partitions), 'partition')} without raw data"
    show(Group(count, "", bullets(items), "", *cut, dim(hint)))


def _next_page(partitions: Sequence[PartitionView]) -> str:
    note = showing(len(partitions)).removesuffix(".")
    return f"{note}, or --after {partitions[-1].id} for the next page."


def _show_overview(ops: Operator, as_json: bool) -> None:
    """Print the number of partitions by dataset and state."""
    datasets = sorted(ops.partitions.counts().items())
    paused = [source for source in ops.sources.find() if source.paused]
    if as_json:
        counts = [
            {"source": source, "query": query, "counts": states}
            for (source, query), states in datasets
        ]
        print_json({"datasets": counts, "paused": paused})
        return
    if not datasets:
        command = "`redrive backfill plan DATASET --since DAY --until DAY`"
        show(expand_commands(f"No partitions. Add some with {command}."))
        return

    def count_of(state: str) -> Column[Any]:
        return Column(SIGNS[state].label, lambda row: f"{row[1].get(state, 0):,}", is_number=True)

    names: Column[Any] = Column(
        "dataset", lambda row: "/".join(row[0]), min_width=12, truncate=True
    )
    table = responsive_table(
        [names, *map(count_of, STATUSES_WORST_FIRST[::-1])], datasets, console().width
    )
    sources = [
        Text(f"Source {source.source}: paused {pause_text(source, ops.now())}", style="yellow")
        for source in paused
    ]
    hint = expand_commands("`redrive state failures`, `redrive state inspect --calendar`")
    show(Group(table, *sources, "", dim(hint)))


def _show_partitions(
    ops: Operator,
    partitions: Sequence[PartitionView],
    as_json: bool,
    cut: str | None,
    *,
    empty: str,
    raw: Sequence[RawState] | None = None,
) -> None:
    """Print partitions.

    Args:
        ops: The operator.
        partitions: The partitions.
        as_json: Print JSON.
        cut: The note if the list is cut.
        empty: The text if there are none.
        raw: The state of the raw data of each, if it was checked.
    """
    if as_json:
        rows = [document(facts) for facts in partitions]
        for row, state in zip(rows, raw or (), strict=False):
            row["raw"] = document(state)
        print_json(rows)
        return
    if not partitions:
        show(empty)
        return
    reasons = top_counts(Counter(facts.reason for facts in partitions if facts.reason))
    count = pluralise(len(partitions), "partition")
    summary = f"{count}: {reasons}" if reasons else count
    columns = _columns(ops.now())
    if all(facts.record_count is None for facts in partitions):  # Only accepted runs have rows.
        columns = [column for column in columns if column.name != "rows"]
    table = responsive_table(columns, partitions, console().width)
    hint = cut or expand_commands("`redrive state explain PARTITION` explains one of them.")
    problems = _raw_problems(partitions, raw or ())
    show(Group(summary, "", table, *problems, "", dim(hint)))


def _raw_problems(
    partitions: Sequence[PartitionView], raw: Sequence[RawState]
) -> list[RenderableType]:
    """Return the problems of raw data, and how much of it was not checked."""
    lines: list[RenderableType] = [
        Text(f"{facts.partition}: raw data not readable: {state.problem}", style="red")
        for facts, state in zip(partitions, raw, strict=False)
        if state.problem is not None
    ]
    unchecked = Counter(state.unchecked for state in raw if state.unchecked is not None)
    for reason, count in unchecked.items():
        text = f"Raw data of {pluralise(count, 'partition')} not checked: {reason}."
        lines.append(Text(expand_commands(text), style="yellow"))
    return ["", *lines] if lines else []


def _columns(now: datetime) -> list[Column[PartitionView]]:
    def row_count(facts: PartitionView) -> str | None:
        return None if facts.record_count is None else f"{facts.record_count:,}"

    return [
        Column("", _sign, min_width=1),
        Column("partition", lambda facts: str(facts.partition), min_width=24),
        Column("status", lambda facts: partition_state(facts, is_short=True)),
        Column("attempts", lambda facts: str(facts.attempt_count), is_number=True, drop_order=2),
        Column("rows", row_count, is_number=True, drop_order=4),
        Column("validated", lambda facts: ago(facts.verdict_at, now), drop_order=3),
        Column(
            "next", lambda facts: "now" if facts.running else ago(facts.next_at, now), drop_order=1
        ),
        Column("reason", _reason, min_width=10, wanted_width=14, truncate=True, drop_order=5),
    ]


def _sign(facts: PartitionView) -> Text:
    return Text(SIGNS[facts.shade].sign, style=SIGNS[facts.shade].style)


def _reason(facts: PartitionView) -> str:
    return rejection_text(facts.reason, facts.error) or facts.paused or facts.terminal or ""
