"""`redrive dead`: dead letters of every kind."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ..core.amount import amount
from ..ops.dead import Drive, Letter, LetterReport
from ..ops.defaults import MAX_REPLAYS
from ..ops.document import document
from ..ops.operator import Operator
from .act import Canary, Detach, Dry, How, MaxReplays, Most, Rate, Yes, act, bound, counted, many
from .fit import Column, fitted
from .followup import spelled, then
from .moments import ago, both, utc
from .options import (
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
    option,
    since_of,
)
from .output import complain, console, heading, pairs, print_json, print_line, show
from .shown import fields, indented, payload, tries

app = typer.Typer(no_args_is_help=True, help="Dead letters: list them, look at one, replay or discard.")

Numbers = Annotated[list[int] | None, typer.Argument(metavar="ID", help="Dead letters by their numbers.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")]
Edit = Annotated[str | None, option("--edit", "FILE", "Of one: with the payload in this file; -: standard input.")]
Payload = Annotated[str | None, option("--payload", "TEXT", "Of one: with this payload.")]
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
    now = ops.now()
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
            "died": ago(letter.died_at, now),
            "UTC": utc(letter.died_at),
            "error": _line(letter.error),
        }
        for letter in found
    ]
    made = fitted(columns, rows, width)
    reasons = counted(Counter(letter.reason for letter in found))
    said = f"{'The newest ' if full else ''}{many(len(found))}: {reasons}"
    hint = "More may match: raise --limit, or narrow it down." if full else spelled("`redrive dead show ID` for one of them.")
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
    first.add_row("died", both(letter.died_at, now))
    if letter.replay_count and letter.died_at > letter.created_at:
        first.add_row("first died", both(letter.created_at, now))
    first.add_row("last tried", both(letter.last_attempt_at, now))
    if letter.source:
        first.add_row("source", f"{letter.source} {letter.source_id or ''}".rstrip())
    shown: list[RenderableType] = [heading(f"Dead letter {letter.id}"), indented(first)]
    shown += fields("Headers", report.headers) + fields("Correlation ids", report.ids)
    shown += payload(f"Payload, {amount(report.payload_bytes, 'byte')}", report.payload, report.payload_bytes)
    for job in report.jobs:
        shown += ["", heading(_job(job)), indented(_tries(job, report))]
    if letter.status == "pending":
        what = then(f'redrive dead replay {letter.id} --because "..."')
        shown += ["", Text(f"→ {what}\n→ {what.replace('replay', 'discard', 1)}", style="dim")]
    return Group(*shown)


def _replays(count: int) -> str:
    return "" if not count else ", replayed once" if count == 1 else f", replayed {count} times"


def _job(job: Drive) -> str:
    replay = f", the replay of job {job.replay_of}" if job.replay_of is not None else ""
    crashes = f", {job.crashes} crashed" if job.crashes else ""
    return f"Job {job.id}{replay}: {job.state}, {job.attempts} {'attempt' if job.attempts == 1 else 'attempts'}{crashes}"


def _tries(job: Drive, report: LetterReport) -> RenderableType:
    if not job.tries:
        waits = f"due {both(job.due_at, report.now)}" if job.ended_at is None else f"ended {both(job.ended_at, report.now)}"
        return Text(f"no failed attempt; {waits}", style="dim")
    return tries(job.tries, report.now)


@app.command()
def replay(
    because: Because, ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, since: Since = None,
    limit: Limit = 100, yes: Yes = False, most: Most = None, dry_run: Dry = False, rate: Rate = None, canary: Canary = 0,
    max_replays: MaxReplays = MAX_REPLAYS, detach: Detach = False, edit: Edit = None, payload_: Payload = None,
    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Give dead letters a new job each, in the old one's place and under its key.

    By their numbers, or by kind, error, reason or since; the latter asks for confirmation: type the number, or say --yes --max N.
    What was confirmed is written down first, as a sweep: killed in the middle, workers go on with it, or `redrive sweeps resume`.
    One of them may be given another payload (--edit, --payload); the letter keeps its own, and the audit knows of both.

    Exit status: 0, all replayed; 1, some or none of them (they are listed, with why); 2, a wrong option, or no selection; 3, the
    ledger cannot be reached or has another schema; 130, interrupted.
    """
    with operator(where, actor) as ops:
        if edit is not None or payload_ is not None:
            _replay_edited(ops, ids or [], _edited(edit, payload_), because, max_replays or None, as_json=as_json)
            return
        plan = ops.replay(ids=ids or (), kind=kind, error=error, reason=reason, since=since_of(since), limit=bound(ids, limit))
        how = How(because, named=bool(ids), yes=yes, most=most, dry_run=dry_run, as_json=as_json, detach=detach)
        act(ops, plan, how, rate=rate, canary=canary, max_replays=max_replays or None)


def _edited(file: str | None, text: str | None) -> bytes:
    if file is not None and text is not None:
        raise typer.BadParameter("is given already, by --payload", param_hint="--edit")
    if text is not None:
        return text.encode()
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file or "").read_bytes()
    except OSError as wrong:
        raise typer.BadParameter(f"{file} cannot be read: {wrong.strerror}", param_hint="--edit") from None


def _replay_edited(
    ops: Operator, ids: list[int], changed: bytes, because: str, max_replays: int | None, *, as_json: bool
) -> None:
    if len(ids) != 1:
        raise typer.BadParameter("goes with one dead letter, by its number", param_hint="--edit, --payload")
    job_id = ops.replay_edited(ids[0], changed, because=because, max_replays=max_replays)
    if as_json:
        print_json({"done": {str(ids[0]): job_id}, "edited": [ids[0]]})
    else:
        show(console(), Text(f"Dead letter {ids[0]} replayed with another payload: job {job_id}"))


@app.command()
def export(
    ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, status: StatusOption = "pending",
    since: Since = None, limit: Annotated[int | None, option("--limit", "N", "At most so many. Default: all.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="With the secrets in them; needs --because.")] = False,
    because: Annotated[str | None, option("--because", "TEXT", "Why they are wanted raw, for the audit.")] = None,
    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print dead letters with headers and payloads, the oldest first: a JSON document on each line (--json: one list).

    Secrets are masked. With --raw they are not: payloads come as text, else in base64, and the audit has who wanted them and why.

    Exit status: 0, printed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    if raw is (because is None):
        raise typer.BadParameter("go together: who sees secrets says why", param_hint="--raw, --because")
    with operator(where, actor) as ops:
        found = ops.export(
            ids=ids or (), kind=kind, error=error, reason=reason, status=None if status == "all" or ids else status,
            since=since_of(since), limit=limit, because=because,
        )  # fmt: skip
        if as_json:
            print_json(list(found))
        else:
            for one in found:
                print_line(one)


@app.command()
def discard(
    because: Because, ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, since: Since = None,
    limit: Limit = 100, yes: Yes = False, most: Most = None, dry_run: Dry = False, rate: Rate = None, detach: Detach = False,
    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Drop dead letters for good; their keys stay taken, so that the same work is not begun again.

    Selected, confirmed and carried out as by `redrive dead replay`.

    Exit status: 0, all discarded; 1, some or none of them (they are listed, with why); 2, a wrong option, or no selection; 3, the
    ledger cannot be reached or has another schema; 130, interrupted.
    """
    with operator(where, actor) as ops:
        plan = ops.discard(ids=ids or (), kind=kind, error=error, reason=reason, since=since_of(since), limit=bound(ids, limit))
        how = How(because, named=bool(ids), yes=yes, most=most, dry_run=dry_run, as_json=as_json, detach=detach)
        act(ops, plan, how, rate=rate)


def _line(error: str | None) -> str:
    """Its first line, and of what it is called the last word: where it comes from leaves no room for what it says."""
    return _PLACE.sub("", (error or "–").strip().partition("\n")[0])


_PLACE = re.compile(r"^(?:\w+\.)+(?=\w+:)")
