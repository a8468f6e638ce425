"""`redrive failures`: one problem or many: what fails, by kind and by what the errors are alike in."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.overview.failures import Failure, FailureReport
from ...ops.partitions.rejections import Rejection
from ...ops.render import ago, both, document
from ..options import NOT_DONE, AsJson, Kind, Since, Until, Where, operator, times_of
from .partitions.failures import rejected
from ..render.details import indented, showing
from ..render.output import complain, console, heading, pairs, print_json, show
from ..render.charts import spark, twos
from ..render.suggestions import spelled, then
from ..render.table import Column, fitted

Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of groups")]
Alike = Annotated[str | None, typer.Argument(metavar="WORDS", help="Text of the error of one group", show_default=False)]


def failures(
    words: Alike = None,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 25,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Group failures by job type and error.

    Each group shows its pending dead letters, failed attempts in the last hour and hour by hour,
    the last occurrence and a sample job. WORDS selects the one group whose error contains them, and
    lists its dead letters.

    Failed partitions follow, grouped by dataset and reason. --kind also takes a dataset, such as
    crm/orders. With --json the groups are in `jobs` and `partitions`.

    Examples:
        redrive failures
        redrive failures --kind crm.sync --since 12h
        redrive failures --since 2026-01-31T08:00 --until 2026-01-31T09:00
        redrive failures "connection refused"

    Exit codes:
        0: shown, also when there are none
        1: no group or several groups match WORDS
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        most = limit if words is None else 500
        times = times_of(since, until)
        found = ops.overview.failures(kind=kind, **times, limit=most)
        parts = ops.overview.rejections(dataset=kind, **times, limit=most)
        now = ops.now()
        chosen = None if words is None else _chosen(found, parts, words)
        report = ops.overview.failure(chosen.kind, chosen.signature) if isinstance(chosen, Failure) else None
    out = console()
    if chosen is not None and as_json:
        print_json(document(report or chosen))
    elif isinstance(chosen, Rejection):
        show(out, rejected([chosen], now, out.width))
    elif report is not None:
        show(out, _report(report, out.width))
    elif as_json:
        print_json({"jobs": document(found), "partitions": document(parts)})
    elif not found and not parts:
        show(out, Text("No failure matches." if kind or since or until else "No failures in the last 31 days."))
    else:
        jobs = [_groups(found, now, out.width, full=len(found) == limit)] if found else []
        space = [""] if found and parts else []
        show(out, Group(*jobs, *space, *([rejected(parts, now, out.width)] if parts else [])))


def _chosen(found: Sequence[Failure], parts: Sequence[Rejection], words: str) -> Failure | Rejection:
    exact = [one for one in found if one.signature == words]
    said = words.casefold()
    alike: list[Failure | Rejection] = [
        *(exact or [one for one in found if said in f"{one.signature}\n{one.error or ''}".casefold()]),
        *(one for one in parts if not exact and said in f"{one.why}\n{one.error or ''}".casefold()),
    ]
    if len(alike) == 1:
        return alike[0]
    named = [
        f"{one.kind}: {one.signature or 'no signature'}" if isinstance(one, Failure) else f"{one.name}: {one.why}"
        for one in alike[:5]
    ]
    what = (
        f"{words!r}: {len(alike):,} groups match; pass --kind, or more of the error"
        if alike
        else f"{words!r}: no group matches; `redrive failures` lists the groups"
    )
    complain(what, *named)
    raise typer.Exit(NOT_DONE)


def _groups(found: Sequence[Failure], now: datetime, width: int, *, full: bool) -> Group:
    columns = [
        Column("dead", number=True),
        Column("failed 1h", number=True),
        Column("24 h", leave=1),
        Column("last", leave=2),
        Column("job type", least=12),
        Column("job", number=True, leave=3),
        Column("error", least=20, wants=28, cut=True),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "dead": Text(f"{one.pending:,}" if one.pending else "–", style="red" if one.pending else ""),
            "failed 1h": Text(f"{one.trend.hour:,}" if one.trend.hour else "–", style="yellow" if one.trend.growing else ""),
            "24 h": Text(spark(twos(one.trend.hours)), style="yellow" if one.trend.hour else "dim"),
            "last": ago(one.last_at, now),
            "job type": one.kind,
            "job": str(one.job_id or "–"),
            "error": one.signature or one.error or "–",
        }
        for one in found
    ]
    hint = showing(len(found)) if full else spelled('`redrive failures "TEXT"` shows one of them.')
    return Group(fitted(columns, rows, width), "", Text(hint, style="dim"))


def _report(report: FailureReport, width: int) -> Group:
    one, now = report.failure, report.now
    first = pairs()
    first.add_row("job type", one.kind)
    if one.error and one.error != one.signature:
        first.add_row("example", one.error)
    first.add_row(
        "pending", pluralise(one.pending, "dead letter") + (f", {one.blocked:,} of them blocked" if one.blocked else "")
    )
    first.add_row("failed", f"{pluralise(one.tries, 'attempt')}, {pluralise(one.died, 'dead letter')}")
    first.add_row("first seen", both(one.first_at, now))
    first.add_row("last seen", both(one.last_at, now))
    growing = ", rising" if one.trend.growing else ""
    first.add_row("24 h", f"{spark(one.trend.hours)}  {one.trend.hour:,} in the last hour{growing}")
    if one.job_id is not None:
        first.add_row("sample", then(f"redrive jobs show {one.job_id}"))
    shown: list[RenderableType] = [heading(one.signature or "(no message)"), indented(first)]
    if report.letters:
        columns = [
            Column("id", number=True),
            Column("dead since"),
            Column("attempts", number=True, leave=1),
            Column("job key", least=12, cut=True),
        ]
        rows = [
            {"id": str(each.id), "dead since": ago(each.created_at, now), "attempts": str(each.attempts), "job key": each.key}
            for each in report.letters[:20]
        ]
        shown += ["", heading("Dead letters, newest first"), indented(fitted(columns, rows, width - 2))]
        which = f"--kind {shlex.quote(one.kind)} --error {shlex.quote(one.signature)}"
        replay = f'redrive dead replay {which} --canary 5 --because "..."'
        shown += ["", Text(f"→ {then(replay)}", style="dim")]
    return Group(*shown)
