"""`redrive dead`: dead letters of every kind."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.dead_letters.model import DeadLetterFilter, Drive, Letter, LetterReport
from ...ops.defaults import MAX_REPLAYS
from ...ops.operator import Operator
from ...ops.render import document
from ..apply.dead_letters import Canary, Detach, Dry, How, MaxReplays, Most, Rate, Yes, act, bound, counted, many
from ..choices import DEAD_LETTER, state_option
from ..command import Commands
from ..options import (
    NOT_DONE,
    Actor,
    AsJson,
    Because,
    BecauseRaw,
    Error,
    Kind,
    Reason,
    Since,
    Until,
    Where,
    operator,
    option,
    times_of,
)
from ..render.details import counted_up_to, fields, indented, payload, showing, state_name, tries
from ..render.moments import ago, both, utc
from ..render.output import complain, console, heading, pairs, print_json, print_line, show
from ..render.suggestions import spelled, then
from ..render.table import Column, fitted

app = Commands(help="List, replay and discard dead letters.")

Numbers = Annotated[list[int] | None, typer.Argument(metavar="ID", help="IDs of dead letters", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of dead letters")]
AllUnless = Annotated[int | None, option("--limit", "N", "Maximum number of dead letters (default: all)")]
Edit = Annotated[str | None, option("--edit", "FILE", "File with a new payload for one dead letter (-: standard input)")]
Payload = Annotated[str | None, option("--payload", "TEXT", "New payload for one dead letter")]
StatusOption = Annotated[
    Literal["pending", "replaying", "replayed", "discarded", "all"],
    state_option("--status", DEAD_LETTER, "Only this status", show_default=True),
]


@app.command("list")
def list_(
    kind: Kind = None,
    error: Error = None,
    reason: Reason = None,
    status: StatusOption = "pending",
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List dead letters.

    Newest first.

    Examples:
        redrive dead list
        redrive dead list --kind crm.sync --error timeout --since 12h

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        times = times_of(since, until)
        which = DeadLetterFilter(kind=kind, error=error, reason=reason, since=times["since"], until=times["until"], limit=limit)
        only = None if status == "all" else status
        found = ops.dead_letters.find(which, status=only)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            show(
                out, _letters(found, ops, out.width, ops.dead_letters.count(which, status=only) if len(found) == limit else None)
            )
        else:
            narrowed = any(each is not None for each in (kind, error, reason, since, until)) or status != "pending"
            show(out, Text(_nothing(ops, narrowed)))


def _nothing(ops: Operator, narrowed: bool) -> str:
    if narrowed:
        return f"No dead letter matches; {counted_up_to(ops.dead_letters.count())} pending in total."
    return f"No dead letters. {ops.status().sentence}."


def _letters(found: Sequence[Letter], ops: Operator, width: int, total: int | None) -> Group:
    now = ops.now()
    several = [Column("status")] if len({letter.status for letter in found}) > 1 else []
    columns = [
        Column("id", number=True),
        Column("job type", least=14),
        *several,
        Column("reason", least=10, most=24, cut=True),
        Column("attempts", number=True, leave=2),
        Column("dead since"),
        Column("UTC", leave=3),
        Column("error", least=14, wants=28, cut=True, leave=1),
    ]
    rows = [
        {
            "id": str(letter.id),
            "job type": letter.kind,
            "status": letter.status,
            "reason": f"{letter.reason} (blocked)" if letter.blocked else letter.reason,
            "attempts": str(letter.attempts),
            "dead since": ago(letter.died_at, now),
            "UTC": utc(letter.died_at),
            "error": _line(letter.error),
        }
        for letter in found
    ]
    made = fitted(columns, rows, width)
    reasons = counted(Counter(letter.reason for letter in found))
    cut = total is not None and total > len(found)
    said = f"{counted_up_to(total)} dead letters match; the newest {len(found):,}: {reasons}" if cut and total else ""
    said = said or f"{many(len(found))}: {reasons}"
    hint = showing(len(found), total) if total is not None else spelled("`redrive dead show ID` shows one of them.")
    return Group(Text(said), "", made, "", Text(hint, style="dim"))


@app.command("show")
def show_(
    letter_id: Annotated[int, typer.Argument(metavar="ID", help="ID of the dead letter")],
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter.

    Shows payload, headers, its jobs and every attempt. Secrets are hidden.

    Examples:
        redrive dead show 42
        redrive dead show 42 --json

    Exit codes:
        0: shown
        1: no dead letter with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        report = ops.dead_letters.get(letter_id)
        if report is None:
            complain(f"dead letter {letter_id}: not found; `redrive dead list --status all` lists all")
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(report))
            return
        show(console(), _report(report))


def _report(report: LetterReport) -> Group:
    letter, now = report.letter, report.now
    first = pairs()
    first.add_row("job type", letter.kind)
    first.add_row("job key", letter.key)
    first.add_row("status", letter.status + _replays(letter.replay_count))
    first.add_row("reason", letter.reason)
    if letter.blocked:
        first.add_row("blocked", "until " + both(letter.blocked_until, now) if letter.blocked_until else "until it is replayed")
    first.add_row("error", letter.error or "–")
    if letter.signature:
        first.add_row("signature", letter.signature)
    first.add_row("dead since", both(letter.died_at, now))
    if letter.replay_count and letter.died_at > letter.created_at:
        first.add_row("first dead", both(letter.created_at, now))
    first.add_row("last attempt", both(letter.last_attempt_at, now))
    if letter.source:
        first.add_row("source", f"{letter.source} {letter.source_id or ''}".rstrip())
    shown: list[RenderableType] = [heading(f"Dead letter {letter.id}"), indented(first)]
    shown += fields("Headers", report.headers) + fields("Correlation ids", report.ids)
    shown += payload(f"Payload, {pluralise(report.payload_bytes, 'byte')}", report.payload, report.payload_bytes)
    for job in report.jobs:
        shown += ["", heading(_job(job)), indented(_tries(job, report))]
    if letter.status == "pending":
        what = then(f'redrive dead replay {letter.id} --because "..."')
        shown += ["", Text(f"→ {what}\n→ {what.replace('replay', 'discard', 1)}", style="dim")]
    return Group(*shown)


def _replays(count: int) -> str:
    return "" if not count else ", replayed once" if count == 1 else f", replayed {count} times"


def _job(job: Drive) -> str:
    replay = f" (replay of job {job.replay_of})" if job.replay_of is not None else ""
    crashes = f", {job.crashes} crashed" if job.crashes else ""
    return f"Job {job.id}{replay}: {state_name(job.state)}, {pluralise(job.attempts, 'attempt')}{crashes}"


def _tries(job: Drive, report: LetterReport) -> RenderableType:
    if not job.tries:
        when = f"due {both(job.due_at, report.now)}" if job.ended_at is None else f"ended {both(job.ended_at, report.now)}"
        return Text(f"No failed attempt; {when}", style="dim")
    return tries(job.tries, report.now)


@app.command()
def replay(
    because: Because, ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, since: Since = None,
    until: Until = None, limit: Limit = 100, yes: Yes = False, most: Most = None, dry_run: Dry = False, rate: Rate = None,
    canary: Canary = 0, max_replays: MaxReplays = MAX_REPLAYS, detach: Detach = False, edit: Edit = None,
    payload_: Payload = None, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Replay dead letters.

    Enqueues a new job for each dead letter, under the same job key. Select by ID, or by --kind,
    --error, --reason, --since or --until. A selection without IDs needs confirmation: type the
    number at the prompt, or pass --yes --max N.

    The selection is recorded as a sweep before the first replay. If this process is killed, workers
    continue the sweep. --edit and --payload replay one dead letter with a new payload. The dead
    letter keeps the original, and the audit log records both hashes.

    Examples:
        redrive dead replay 42 --because "CRM is back"
        redrive dead replay --kind crm.sync --since 12h --canary 5 --because "INC-42"
        redrive dead replay --kind crm.sync --yes --max 500 --because "INC-42"

    Exit codes:
        0: all replayed
        1: some or none replayed; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    with operator(where, actor) as ops:
        if edit is not None or payload_ is not None:
            _replay_edited(ops, ids or [], _edited(edit, payload_), because, max_replays or None, as_json=as_json)
            return
        plan = ops.dead_letters.replay(_which(ids, kind, error, reason, times_of(since, until), bound(ids, limit)))
        how = How(because, named=bool(ids), yes=yes, most=most, dry_run=dry_run, as_json=as_json, detach=detach)
        act(ops, plan, how, rate=rate, canary=canary, max_replays=max_replays or None)


def _which(
    ids: list[int] | None, kind: str | None, error: str | None, reason: str | None, times: dict[str, datetime | None], limit: int
) -> DeadLetterFilter:
    """The selection. Nothing at all would mean every dead letter."""
    which = DeadLetterFilter(tuple(ids or ()), kind, reason, error, since=times["since"], until=times["until"], limit=limit)
    if which.selects_all:
        raise ValueError("no dead letters selected; pass IDs, or --kind, --error, --reason, --since or --until")
    return which


def _edited(file: str | None, text: str | None) -> bytes:
    if file is not None and text is not None:
        raise typer.BadParameter("pass only one of them", param_hint="--edit, --payload")
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
        raise typer.BadParameter("needs the ID of one dead letter", param_hint="--edit, --payload")
    job_id = ops.dead_letters.replay_edited(ids[0], changed, because=because, max_replays=max_replays)
    if as_json:
        print_json({"done": {str(ids[0]): job_id}, "edited": [ids[0]]})
    else:
        show(console(), Text(f"Dead letter {ids[0]} replayed with a new payload as job {job_id}"))


@app.command()
def export(
    ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, status: StatusOption = "pending",
    since: Since = None, until: Until = None, limit: AllUnless = None,
    raw: Annotated[bool, typer.Option("--raw", help="Include secrets (needs --because)")] = False,
    because: BecauseRaw = None,
    actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print dead letters as JSON lines.

    Oldest first, with headers and payloads. Secrets are masked. With --raw they are included:
    payloads are text, or base64 if they are not UTF-8. The audit log records who exported them and
    why. With --json the output is one list.

    Examples:
        redrive dead export --kind crm.sync > crm.jsonl
        redrive dead export 42 --raw --because "INC-42"

    Exit codes:
        0: printed, also when there are none
        1: no dead letter with one of these IDs
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    if raw is (because is None):
        raise typer.BadParameter("pass both or neither", param_hint="--raw, --because")
    with operator(where, actor) as ops:
        times = times_of(since, until)
        which = DeadLetterFilter(tuple(ids or ()), kind, reason, error, since=times["since"], until=times["until"], limit=limit)
        only = None if status == "all" or ids else status
        found = ops.dead_letters.export(which, status=only, because=because)
        printed: set[int] = set()
        listed = [*found] if as_json else None
        if listed is not None:
            print_json(listed)
        for one in found if listed is None else listed:
            printed.add(one["id"])
            if listed is None:
                print_line(one)
        missing = [each for each in dict.fromkeys(ids or ()) if each not in printed]
        if missing:
            complain(f"dead letters not found: {', '.join(map(str, missing))}; `redrive dead list --status all` lists all")
            raise typer.Exit(NOT_DONE)


@app.command()
def discard(
    because: Because, ids: Numbers = None, kind: Kind = None, error: Error = None, reason: Reason = None, since: Since = None,
    until: Until = None, limit: Limit = 100, yes: Yes = False, most: Most = None, dry_run: Dry = False, rate: Rate = None,
    detach: Detach = False, actor: Actor = None, where: Where = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Discard dead letters.

    A discarded dead letter is not replayed. Its job key stays in use, so that the same job is not
    submitted again. Selection and confirmation work as in `redrive dead replay`.

    Examples:
        redrive dead discard 42 --because "test order"
        redrive dead discard --kind crm.sync --error "no such contact" --because "INC-42"

    Exit codes:
        0: all discarded
        1: some or none discarded; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    with operator(where, actor) as ops:
        plan = ops.dead_letters.discard(_which(ids, kind, error, reason, times_of(since, until), bound(ids, limit)))
        how = How(because, named=bool(ids), yes=yes, most=most, dry_run=dry_run, as_json=as_json, detach=detach)
        act(ops, plan, how, rate=rate)


def _line(error: str | None) -> str:
    """Its first line, and of what it is called the last word: where it comes from leaves no room for what it says."""
    return _PLACE.sub("", (error or "–").strip().partition("\n")[0])


_PLACE = re.compile(r"^(?:\w+\.)+(?=\w+:)")
