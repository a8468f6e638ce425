"""Looks: partitions as they are listed and looked at: `redrive state inspect | failures | history | explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ..core.amount import amount
from ..ops.calendar import WORST
from ..ops.desk import Facts
from ..ops.document import document
from ..ops.lost import Lost
from ..ops.operator import Operator
from ..ops.selection import Selection
from .calendar import SIGNS, heat_map
from .fit import Column, fitted
from .followup import spelled
from .moments import ago
from .options import NOT_DONE, AsJson, Where, operator
from .output import bullets, complain, console, print_json, show
from .partition_shown import counted, explained, quoted, rejected, standing, told
from .selectors import (
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
)  # fmt: skip

NONE = "no partition matches; those that nobody has asked for yet are not known here"
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]
After = Annotated[
    int, typer.Option("--after", min=0, metavar="N", help="Those behind this number: the next page.", show_default=False)
]
AsCalendar = Annotated[bool, typer.Option("--calendar", help="A heat map: datasets by days; without dates the last eight weeks.")]
By = Annotated[
    Literal["day", "week", "month"] | None,
    typer.Option("--by", help="Of the calendar: what a column is. Default: what fits.", show_default=False),
]
Gone = Annotated[bool, typer.Option("--lost", help="Only what is accepted and cannot be read: its raw data is gone or changed.")]
Terminal = Annotated[bool, typer.Option("--terminal", help="Only what is not tried any more.")]


def inspect(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, status: Status = None, error: Error = None, min_attempts: MinAttempts = None,
    lane: InLane = None, calendar: AsCalendar = False, by: By = None, lost: Gone = False, limit: Limit = 50, after: After = 0,
    where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Partitions: how they stand. Without a selection how many of each dataset are in which state; --calendar, a heat map.

    --lost looks into the store, and lists what was accepted and cannot be read: somebody has deleted or changed its files.

    Exit status: 0, shown, also where there are none; 1, with --lost: nobody here knows the store, or it cannot be reached; 2, a
    wrong option, or no such source or query; 3, the ledger cannot be reached or has another schema.
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
            more = f"More may match: --after {some[-1].id}, or raise --limit." if len(some) == limit else None
            _list(ops, some, as_json, "The first ", more)


def failures(
    words: Words = None, source: Source = None, customer: Customers = None, query: Query = None, since: First = None,
    until: Last = None, on: On = None, error: Error = None, min_attempts: MinAttempts = None, terminal: Terminal = False,
    limit: Limit = 50, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """What failed, and what is readable while a newer run of it was rejected; --terminal, what is not tried any more.

    Exit status: 0, listed, also where there are none; 2, a wrong option, or no such source or query; 3, the ledger cannot be
    reached or has another schema.
    """
    with operator(where, app_first=True) as ops:
        asked = which(words, source, customer, query, since, until, on, None, error, min_attempts, None)
        found = ops.partitions.failures(asked, terminal=terminal, limit=limit)
        more = "More may have failed: narrow it down, or raise --limit." if len(found) == limit else None
        none = "nothing has failed" if asked.everything else "nothing of these has failed"
        _list(ops, found, as_json, "The last ", more, none)


def history(partition: Partition, where: Where = None, as_json: AsJson = False) -> None:
    """Every attempt at one partition, the newest first: its verdict, what each check measured, and the limit.

    Exit status: 0, shown; 1, nothing is stored of it; 2, that is no partition, or no such source or query; 3, the ledger cannot
    be reached or has another schema.
    """
    with operator(where, app_first=True) as ops:
        found = ops.partitions.history(partition)
        if found is None:
            hint = f"redrive state explain {quoted(partition)}"
            complain(f"nothing is stored of {partition}: nobody has asked for it yet", hint)
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(found))
            return
        show(console(), told(found))


def explain(partition: Partition, where: Where = None, as_json: AsJson = False) -> None:
    """How one partition stands, why it is not running now, when it will, and what can be done.

    Exit status: 0, explained, also where nothing is stored of it; 2, that is no partition, or no such source or query; 3, the
    ledger cannot be reached or has another schema.
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
        raise ValueError("--calendar folds all customers and states together: narrow it down by source, query and dates only")
    found = ops.partitions.calendar(asked.since, asked.until, source=asked.source, query=asked.query_name)
    if as_json:
        print_json(document(found))
    elif not found.rows:
        show(console(), Text(f"nothing is known of {found.since} to {found.until}: no partition was asked for"))
    else:
        out = console()
        show(out, heat_map(found, out.width, by=by))


def _lost(found: Sequence[Lost], as_json: bool, *, more: bool) -> None:
    if as_json:
        print_json([document(one.facts) | {"says": one.says} for one in found])
        return
    out = console()
    if not found:
        show(out, Text("nothing is lost: the raw data of all that is accepted is there"))
        return
    made = bullets()
    for one in found:
        made.add_row(Text("✗", style="red"), Text(str(one.facts.partition)))
        made.add_row("", Text(one.says, style="dim"))
    which = quoted(str(found[0].facts.partition)) if len(found) == 1 else "PARTITION ..."
    again = f'`redrive state reprocess {which} --because "..."` has it extracted again'
    hint = spelled(f"{again}; `redrive state rollback` goes back to an earlier run.")
    next_ = [Text(f"More may be lost: --after {found[-1].facts.id}, or raise --limit.", style="dim")] if more else []
    said = f"{'The first ' if more else ''}{amount(len(found), 'partition')} without raw data"
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
        show(out, Text(spelled("no partitions yet: a dataset's cron brings them, or `redrive backfill plan`")))
        return
    names = WORST[::-1]
    columns = [Column("dataset", least=12, cut=True), *(Column(SIGNS[name].says, number=True) for name in names)]
    rows: list[Mapping[str, str | Text]] = [
        {"dataset": f"{key[0]}/{key[1]}"} | {SIGNS[name].says: f"{counts.get(name, 0):,}" for name in names}
        for key, counts in sorted(found.items())
    ]
    lines: list[RenderableType] = [fitted(columns, rows, out.width)]
    for one in paused:
        until = "until somebody says so" if one.until is None else f"and probed {ago(one.until, ops.now())}"
        lines.append(Text(f"Source {one.source} is paused by {one.actor}, {until}: {one.because}", style="yellow"))
    then_ = spelled("`redrive state failures`, `redrive state inspect --calendar`")
    show(out, Group(*lines, "", Text(then_, style="dim")))


def _list(ops: Operator, found: Sequence[Facts], as_json: bool, which: str, more: str | None, none: str = NONE) -> None:
    if as_json:
        print_json([document(one) for one in found])
        return
    out = console()
    if not found:
        show(out, Text(none))
        return
    reasons = Counter(one.reason for one in found if one.reason)
    said = f"{which if more else ''}{amount(len(found), 'partition')}"
    lines: list[RenderableType] = [Text(said + (f": {counted(reasons)}" if reasons else "")), ""]
    lines.append(_table(found, ops.now(), out.width))
    hint = more or spelled("`redrive state explain PARTITION` for one of them.")
    show(out, Group(*lines, "", Text(hint, style="dim")))


def _table(found: Sequence[Facts], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("", least=1),
        Column("partition", least=24),
        Column("status"),
        Column("tries", number=True, leave=2),
        Column("rows", number=True, leave=4),
        Column("judged", leave=3),
        Column("next", leave=1),
        Column("why", least=10, wants=14, cut=True, leave=5),
    ]
    rows: list[Mapping[str, str | Text]] = [
        {
            "": Text(SIGNS[one.shade].sign, style=SIGNS[one.shade].style), "partition": str(one.partition),
            "status": standing(one, short=True), "tries": str(one.attempt_count),
            "rows": "–" if one.record_count is None else f"{one.record_count:,}", "judged": ago(one.verdict_at, now),
            "next": "now" if one.running else ago(one.next_at, now), "why": _why(one),
        }
        for one in found
    ]  # fmt: skip
    return fitted(columns, rows, width)


def _why(one: Facts) -> str:
    return rejected(one.reason, one.error) or one.paused or one.terminal or ""
