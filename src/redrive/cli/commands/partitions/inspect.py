"""Looks: partitions as they are listed and looked at: `redrive state inspect | failures | history | explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ....core.text import pluralise
from ....ops.operator import Operator
from ....ops.partitions.calendar import WORST
from ....ops.partitions.lost import Lost, RawState
from ....ops.partitions.operator import Facts
from ....ops.partitions.selection import Selection
from ....ops.render import document
from ...options import NOT_DONE, AsJson, Where, operator
from ...render.details import showing
from ...render.moments import ago
from ...render.output import bullets, complain, console, print_json, show
from ...render.suggestions import spelled
from ...render.table import Column, fitted
from .calendar import SIGNS, heat_map
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
from .render import counted, explained, quoted, rejected, standing, told

NONE = "No partition matches. Partitions are stored when they are first queued."
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of partitions")]
After = Annotated[
    int, typer.Option("--after", min=0, metavar="N", help="Number of the last partition on the previous page", show_default=False)
]
AsCalendar = Annotated[bool, typer.Option("--calendar", help="Heat map of datasets by day (default: the last 8 weeks)")]
By = Annotated[
    Literal["day", "week", "month"] | None,
    typer.Option("--by", help="Unit of a calendar column (default: the finest that fits)", show_default=False),
]
Gone = Annotated[bool, typer.Option("--lost", help="Only accepted partitions whose raw data is missing or of another size")]
Terminal = Annotated[bool, typer.Option("--terminal", help="Only partitions that gave up")]


def inspect(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, calendar: AsCalendar = False, by: By = None, lost: Gone = False, limit: Limit = 50, after: After = 0,
    where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
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
    with operator(where, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, status, error, min_attempts, lane)
        if lost:
            found = ops.partitions.lost(asked, after=after, limit=limit)
            _lost(found, as_json, more=len(found) == limit)
        elif calendar:
            _calendar(ops, asked, by, as_json)
        elif asked.everything and not after:
            _overview(ops, as_json)
        else:
            some = ops.partitions.inspect(asked, after=after, limit=limit)
            more = f"{showing(len(some))[:-1]}, or --after {some[-1].id} for the next page." if len(some) == limit else None
            raw = None if asked.keys is None else ops.partitions.raw_states(some)
            _list(ops, some, as_json, more, raw=raw)


def failures(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, error: Error = None, min_attempts: MinAttempts = None, terminal: Terminal = False,
    limit: Limit = 50, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
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
    with operator(where, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, None, error, min_attempts, None)
        found = ops.partitions.failures(asked, terminal=terminal, limit=limit)
        more = showing(len(found)) if len(found) == limit else None
        none = "No failed partitions." if asked.everything else "No failed partition matches."
        _list(ops, found, as_json, more, none)


def history(partition: Partition, where: Where = None, as_json: AsJson = False) -> None:
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
    with operator(where, app_first=True) as ops:
        found = ops.partitions.history(partition)
        if found is None:
            hint = f"redrive state explain {quoted(partition)}"
            complain(f"{partition}: not stored; it was never queued", hint)
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(found))
            return
        show(console(), told(found))


def explain(partition: Partition, where: Where = None, as_json: AsJson = False) -> None:
    """Explain why a partition is not running.

    Shows its state, the cause, the next attempt and the commands that apply.

    Examples:
        redrive state explain crm/acme/orders/2026-06-01

    Exit codes:
        0: shown, also when the partition is not stored
        2: invalid option or partition, or unknown source or query
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, app_first=True) as ops:
        found = ops.partitions.explain(partition)
        if as_json:
            print_json(document(found))
        else:
            show(console(), explained(found))


def _calendar(ops: Operator, asked: Selection, by: Literal["day", "week", "month"] | None, as_json: bool) -> None:
    narrower = [
        name for name in ("customers", "shades", "reason", "min_attempts", "lane", "keys") if getattr(asked, name) is not None
    ]
    if narrower:
        raise ValueError("--calendar: takes only source, query and dates, because a cell has all customers and states")
    found = ops.partitions.calendar(asked.since, asked.until, source=asked.source, query=asked.query_name)
    if as_json:
        print_json(document(found))
    elif not found.rows:
        show(console(), Text(f"No partitions from {found.since} to {found.until}."))
    else:
        out = console()
        show(out, heat_map(found, out.width, by=by))


def _lost(found: Sequence[Lost], as_json: bool, *, more: bool) -> None:
    if as_json:
        print_json([document(one.facts) | {"says": one.says} for one in found])
        return
    out = console()
    if not found:
        show(out, Text("No missing raw data."))
        return
    made = bullets()
    for one in found:
        made.add_row(Text("✗", style="red"), Text(str(one.facts.partition)))
        made.add_row("", Text(one.says, style="dim"))
    which = quoted(str(found[0].facts.partition)) if len(found) == 1 else "PARTITION ..."
    again = f'`redrive state reprocess {which} --because "..."` extracts again'
    hint = spelled(f'{again}; `redrive state rollback PARTITION --because "..."` restores an earlier run.')
    next_ = [Text(f"{showing(len(found))[:-1]}, or --after {found[-1].facts.id} for the next page.", style="dim")] if more else []
    said = f"{pluralise(len(found), 'partition')} without raw data"
    show(out, Group(Text(said), "", made, "", *next_, Text(hint, style="dim")))


def _overview(ops: Operator, as_json: bool) -> None:
    found = ops.partitions.counts()
    paused = [one for one in ops.partitions.sources() if one.paused]
    if as_json:
        said = [{"source": key[0], "query": key[1], "counts": document(counts)} for key, counts in sorted(found.items())]
        print_json({"datasets": said, "paused": document(paused)})
        return
    out = console()
    if not found:
        show(out, Text(spelled("No partitions. Add some with `redrive backfill plan DATASET --since DAY --until DAY`.")))
        return
    names = WORST[::-1]
    columns = [Column("dataset", least=12, cut=True), *(Column(SIGNS[name].says, number=True) for name in names)]
    rows: list[Mapping[str, str | Text]] = [
        {"dataset": f"{key[0]}/{key[1]}"} | {SIGNS[name].says: f"{counts.get(name, 0):,}" for name in names}
        for key, counts in sorted(found.items())
    ]
    lines: list[RenderableType] = [fitted(columns, rows, out.width)]
    for one in paused:
        until = "until it is unpaused" if one.until is None else f"probed {ago(one.until, ops.now())}"
        lines.append(Text(f"Source {one.source}: paused by {one.actor}, {until} ({one.because})", style="yellow"))
    then_ = spelled("`redrive state failures`, `redrive state inspect --calendar`")
    show(out, Group(*lines, "", Text(then_, style="dim")))


def _list(
    ops: Operator, found: Sequence[Facts], as_json: bool, more: str | None, none: str = NONE,
    raw: Sequence[RawState] | None = None,
) -> None:  # fmt: skip
    """Print partitions. raw: what is known of the raw data of each."""
    if as_json:
        more_fields: list[dict[str, Any]] = [{} for _ in found] if raw is None else [{"raw": document(one)} for one in raw]
        print_json([document(one) | fields for one, fields in zip(found, more_fields, strict=True)])
        return
    out = console()
    if not found:
        show(out, Text(none))
        return
    reasons = Counter(one.reason for one in found if one.reason)
    said = pluralise(len(found), "partition")
    lines: list[RenderableType] = [Text(said + (f": {counted(reasons)}" if reasons else "")), ""]
    lines.append(_table(found, ops.now(), out.width))
    lines += _raw_lines(found, raw or ())
    hint = more or spelled("`redrive state explain PARTITION` explains one of them.")
    show(out, Group(*lines, "", Text(hint, style="dim")))


def _raw_lines(found: Sequence[Facts], raw: Sequence[RawState]) -> list[RenderableType]:
    """What is wrong with raw data, and what was not checked."""
    pairs = list(zip(found, raw, strict=True)) if raw else []
    lines: list[RenderableType] = [
        Text(f"{one.partition}: raw data not readable: {state.problem}", style="red")
        for one, state in pairs
        if state.problem is not None
    ]
    reasons = Counter(state.unchecked for _, state in pairs if state.unchecked is not None)
    lines += [
        Text(spelled(f"Raw data of {pluralise(count, 'partition')} not checked: {why}."), style="yellow")
        for why, count in reasons.items()
    ]
    return ["", *lines] if lines else []


def _table(found: Sequence[Facts], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("", least=1),
        Column("partition", least=24),
        Column("status"),
        Column("attempts", number=True, leave=2),
        Column("rows", number=True, leave=4),
        Column("validated", leave=3),
        Column("next", leave=1),
        Column("reason", least=10, wants=14, cut=True, leave=5),
    ]
    rows: list[Mapping[str, str | Text]] = [
        {
            "": Text(SIGNS[one.shade].sign, style=SIGNS[one.shade].style), "partition": str(one.partition),
            "status": standing(one, short=True), "attempts": str(one.attempt_count),
            "rows": "–" if one.record_count is None else f"{one.record_count:,}", "validated": ago(one.verdict_at, now),
            "next": "now" if one.running else ago(one.next_at, now), "reason": _why(one),
        }
        for one in found
    ]  # fmt: skip
    return fitted(columns, rows, width)


def _why(one: Facts) -> str:
    return rejected(one.reason, one.error) or one.paused or one.terminal or ""
