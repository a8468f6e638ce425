"""`redrive dead`: dead letters of every kind."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..ops.dead import Drive, Letter, LetterReport
from ..ops.document import document
from ..ops.operator import Operator
from ..ops.plan import Act, Plan
from .confirm import confirmed
from .fit import Column, fitted
from .moments import ago, both, utc
from .options import (
    INTERRUPTED,
    NOT_DONE,
    Actor,
    AsJson,
    Because,
    Error,
    Kind,
    Reason,
    Since,
    Where,
    operator,
    since_of,
)
from .output import complain, console, heading, pairs, print_json, show

app = typer.Typer(no_args_is_help=True, help="Dead letters: list them, look at one, replay or discard.")

Numbers = Annotated[list[int] | None, typer.Argument(metavar="ID", help="Dead letters by their numbers.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask; needs --max.")]
Most = Annotated[
    int | None, typer.Option("--max", min=0, metavar="N", help="With --yes: do nothing if there are more.", show_default=False)
]
Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
StatusOption = Annotated[
    Literal["pending", "replaying", "replayed", "discarded", "all"], typer.Option("--status", help="Only in this state.")
]


@app.command("list")
def list_(
    kind: Kind = None,
    error: Error = None,
    reason: Reason = None,
    status: StatusOption = "pending",
    since: Since = None,
    limit: Limit = 50,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found = ops.dead(
            kind=kind, error=error, reason=reason, status=None if status == "all" else status, since=since_of(since), limit=limit
        )
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            show(out, _letters(found, ops, out.width, full=len(found) == limit))
        else:
            narrowed = any(each is not None for each in (kind, error, reason, since)) or status != "pending"
            show(out, Text(_nothing(ops, narrowed)))


def _nothing(ops: Operator, narrowed: bool) -> str:
    if narrowed:
        others = len(ops.dead(limit=1000))
        said = "1,000 or more" if others == 1000 else f"{others:,}"
        return f"no dead letter matches; {said} pending in all"
    return f"nothing is dead: {ops.status().sentence}"


def _letters(found: Sequence[Letter], ops: Operator, width: int, *, full: bool) -> Group:
    now = ops.ledger.now()
    several = [Column("status")] if len({letter.status for letter in found}) > 1 else []
    columns = [
        Column("id", number=True),
        Column("kind", least=14),
        *several,
        Column("reason", least=10, most=24, cut=True),
        Column("tries", number=True, leave=2),
        Column("died"),
        Column("UTC", leave=3),
        Column("error", least=14, wants=28, cut=True, leave=1),
    ]
    rows = [
        {
            "id": str(letter.id),
            "kind": letter.kind,
            "status": letter.status,
            "reason": f"{letter.reason} (blocked)" if letter.blocked else letter.reason,
            "tries": str(letter.attempts),
            "died": ago(letter.created_at, now),
            "UTC": utc(letter.created_at),
            "error": _line(letter.error),
        }
        for letter in found
    ]
    made = fitted(columns, rows, width)
    reasons = _counted(Counter(letter.reason for letter in found))
    said = f"{'The newest ' if full else ''}{_many(len(found))}: {reasons}"
    hint = "More may match: raise --limit, or narrow it down." if full else "`redrive dead show ID` for one of them."
    return Group(Text(said), "", made, "", Text(hint, style="dim"))


@app.command("show")
def show_(
    letter_id: Annotated[int, typer.Argument(metavar="ID", help="The dead letter's number.")],
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: payload and headers without secrets, its jobs, and every attempt.

    Exit status: 0, shown; 1, there is none of that number; 2, a wrong option; 3, the ledger cannot be reached or has another
    schema.
    """
    with operator(where) as ops:
        report = ops.letter(letter_id)
        if report is None:
            complain(f"there is no dead letter {letter_id}; `redrive dead list --status all` lists them")
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(report))
            return
        show(console(), _report(report))


def _report(report: LetterReport) -> Group:
    letter, now = report.letter, report.now
    first = pairs()
    first.add_row("kind", letter.kind)
    first.add_row("key", letter.key)
    first.add_row("status", letter.status + _replays(letter.replay_count))
    first.add_row("reason", letter.reason)
    if letter.blocked:
        first.add_row(
            "blocked", "until " + both(letter.blocked_until, now) if letter.blocked_until else "until somebody replays it"
        )
    first.add_row("error", letter.error or "–")
    if letter.signature:
        first.add_row("signature", letter.signature)
    first.add_row("died", both(letter.created_at, now))
    first.add_row("last tried", both(letter.last_attempt_at, now))
    if letter.source:
        first.add_row("source", f"{letter.source} {letter.source_id or ''}".rstrip())
    shown: list[RenderableType] = [heading(f"Dead letter {letter.id}"), Padding(first, (0, 0, 0, 2), expand=False)]
    for title, fields in (("Headers", report.headers), ("Correlation ids", report.ids)):
        if fields:
            made = pairs()
            for name, value in fields.items():
                made.add_row(name, str(value))
            shown += ["", heading(title), Padding(made, (0, 0, 0, 2), expand=False)]
    shown += ["", heading(f"Payload, {report.payload_bytes:,} bytes"), Padding(_payload(report), (0, 0, 0, 2), expand=False)]
    for job in report.jobs:
        shown += ["", heading(_job(job)), Padding(_tries(job, report), (0, 0, 0, 2), expand=False)]
    if letter.status == "pending":
        what = f'redrive dead replay {letter.id} --because "..."'
        shown += ["", Text(f"→ {what}\n→ {what.replace('replay', 'discard')}", style="dim")]
    return Group(*shown)


def _replays(count: int) -> str:
    return "" if not count else ", replayed once" if count == 1 else f", replayed {count} times"


def _payload(report: LetterReport) -> Text:
    if report.payload is None:
        return Text("(neither JSON nor text)" if report.payload_bytes else "(empty)", style="dim")
    return Text(report.payload if isinstance(report.payload, str) else json.dumps(report.payload, indent=2, ensure_ascii=False))


def _job(job: Drive) -> str:
    replay = f", the replay of job {job.replay_of}" if job.replay_of is not None else ""
    crashes = f", {job.crashes} crashed" if job.crashes else ""
    return f"Job {job.id}{replay}: {job.state}, {job.attempts} {'attempt' if job.attempts == 1 else 'attempts'}{crashes}"


def _tries(job: Drive, report: LetterReport) -> RenderableType:
    if not job.tries:
        waits = f"due {both(job.due_at, report.now)}" if job.ended_at is None else f"ended {both(job.ended_at, report.now)}"
        return Text(f"no failed attempt; {waits}", style="dim")
    made = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for one in job.tries:
        by = f" by {one.worker}" if one.worker else ""
        made.add_row(str(one.number), one.outcome, Text(f"{both(one.ended_at, report.now)}{by}"))
        said = ": ".join(part for part in (one.reason, one.error) if part)
        if said:
            made.add_row("", "", Text(said, style="red"))
    return made


@app.command()
def replay(
    because: Because, ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, since: Since = None,
    limit: Limit = 100, yes: Yes = False, most: Most = None, dry_run: Dry = False, actor: Actor = None, where: Where = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Give dead letters a new job each, in the old one's place and under its key.

    By their numbers, or by kind, error, reason or since; the latter asks for confirmation: type the number, or say --yes --max N.
    Done in steps of 100, each one transaction with its entry in the audit: interrupted, it can simply be run again.

    Exit status: 0, all replayed; 1, some or none of them (they are listed, with why); 2, a wrong option, or no selection; 3, the
    ledger cannot be reached or has another schema; 130, interrupted.
    """
    with operator(where, actor) as ops:
        plan = ops.replay(ids=ids or (), kind=kind, error=error, reason=reason, since=since_of(since), limit=_bound(ids, limit))
        _apply(ops, plan, because=because, named=bool(ids), yes=yes, most=most, dry_run=dry_run, as_json=as_json)


@app.command()
def discard(
    because: Because, ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, since: Since = None,
    limit: Limit = 100, yes: Yes = False, most: Most = None, dry_run: Dry = False, actor: Actor = None, where: Where = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Drop dead letters for good; their keys stay taken, so that the same work is not begun again.

    Selected, confirmed and carried out as by `redrive dead replay`.

    Exit status: 0, all discarded; 1, some or none of them (they are listed, with why); 2, a wrong option, or no selection; 3, the
    ledger cannot be reached or has another schema; 130, interrupted.
    """
    with operator(where, actor) as ops:
        plan = ops.discard(ids=ids or (), kind=kind, error=error, reason=reason, since=since_of(since), limit=_bound(ids, limit))
        _apply(ops, plan, because=because, named=bool(ids), yes=yes, most=most, dry_run=dry_run, as_json=as_json)


def _bound(ids: list[int] | None, limit: int) -> int:
    return max(limit, len(ids)) if ids else limit


def _apply(
    ops: Operator, plan: Plan, *, because: str, named: bool, yes: bool, most: int | None, dry_run: bool, as_json: bool
) -> None:
    ops.applying(plan, because=because)  # refuses an empty reason, before anybody is asked anything
    if not as_json:
        show(console(), _plan(plan))
    if dry_run or not plan.count:
        if as_json:
            print_json({"plan": document(plan), "done": {}, "skipped": document(plan.skipped)})
        raise typer.Exit(NOT_DONE if plan.skipped else 0)
    if not named:
        confirmed(plan, yes=yes, most=most)
    done: dict[int, int] = {}
    skipped = dict(plan.skipped)
    status = 0
    try:
        for step in ops.applying(plan, because=because):
            done |= step.done
            skipped |= step.skipped
            if plan.count > len(step.done) and sys.stderr.isatty():
                print(f"\r{len(done):,} of {plan.count:,}", end="" if len(done) < plan.count else "\n", file=sys.stderr)
    except KeyboardInterrupt:
        complain("interrupted: whole steps are done and in the audit, the rest is as it was; run it again to go on")
        status = INTERRUPTED
    if as_json:
        print_json({"plan": document(plan), "done": document(done), "skipped": document(skipped)})
    else:
        _say(plan.act, done, {one: why for one, why in skipped.items() if one not in plan.skipped})
    raise typer.Exit(status or (NOT_DONE if skipped else 0))


def _plan(plan: Plan) -> RenderableType:
    lines: list[RenderableType] = []
    if plan.count:
        lines.append(Text(f"To {plan.act}: {_many(plan.count)} ({_counted(plan.kinds)}; {_counted(plan.reasons)})"))
    elif not plan.skipped:
        lines.append(Text(f"nothing to {plan.act}: no dead letter that is pending matches"))
    if plan.more:
        lines.append(Text("More match, beyond --limit.", style="yellow"))
    lines += [Text(f"Not {letter_id}: {why}", style="yellow") for letter_id, why in plan.skipped.items()]
    return Group(*lines)


def _say(act: Act, done: dict[int, int], skipped: dict[int, str]) -> None:
    out: Console = console()
    past = "replayed" if act == "replay" else "discarded"
    if len(done) <= 10:
        for letter_id, job_id in done.items():
            show(out, Text(f"Dead letter {letter_id} {past}: job {job_id}"))
    else:
        show(out, Text(f"{_many(len(done))} {past}"))
    for letter_id, why in skipped.items():
        show(out, Text(f"Not {letter_id}: {why}", style="yellow"))


def _many(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"


def _counted(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} ×{count:,}" for name, count in most[:4]) + (", …" if len(most) > 4 else "")


def _line(error: str | None) -> str:
    return (error or "–").strip().partition("\n")[0]
