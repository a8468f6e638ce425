"""`redrive dead`: list, show, replay, export and discard dead letters."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.context import MAX_REPLAYS
from ...ops.dead_letters.model import DeadLetterFilter, Letter, LetterReport, ReplayChainJob
from ...ops.operator import Operator
from ...ops.render import ago, both, utc
from ...ops.search import dead_letters_only
from ..apply.confirm import ApplyOptions, Confirmation
from ..apply.dead_letters import Canary, Detach, MaxReplays, Rate, apply_plan
from ..command import CommandGroup
from ..errors import NOT_DONE, complain, fail, refuse_option
from ..options import (
    DEAD_LETTER_STATES,
    Because,
    Error,
    Kind,
    RawBecause,
    ReadOptions,
    Reason,
    Since,
    Until,
    WriteOptions,
    argument,
    flag,
    limit_option,
    open_operator,
    option,
    require_reason_for_raw,
    state_option,
    time_range,
)
from ..render import (
    Column,
    attempt_table,
    detail_view,
    first_line,
    named_values,
    payload_section,
    print_json,
    print_json_line,
    print_result,
    print_table,
    replay_note,
    section,
    show,
    showing,
    state_name,
    suggestion,
    top_counts,
    up_to_limit,
)
from ..suggestions import expand_commands
from ..unknown_names import unknown_kind, unknown_reason

app = CommandGroup(help="List, replay and discard dead letters.")

Ids = Annotated[list[int] | None, argument("ID", "IDs of dead letters")]
Limit = Annotated[int, limit_option("dead letters")]
StoredStatus: TypeAlias = Literal["pending", "replaying", "replayed", "discarded"]
Status = Annotated[
    Literal["pending", "replaying", "replayed", "discarded", "all"],
    state_option("--status", DEAD_LETTER_STATES, "Only this status", show_default=True),
]
Search = Annotated[
    str | None, option("--search", "WORDS", "Only jobs that match, in the words of `redrive find`")
]
LISTS_ALL = "`redrive dead list --status all` lists all"

_ERROR_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+:)")
"""The module before the class of an error. It would leave no room for the message."""


@dataclass(frozen=True, slots=True)
class PendingOptions:
    """The options that select pending dead letters."""

    kind: Kind = None
    error: Error = None
    reason: Reason = None
    since: Since = None
    until: Until = None
    search: Search = None

    def filter(self, ops: Operator, ids: list[int] | None, limit: int | None) -> DeadLetterFilter:
        """Return the selection."""
        named = DeadLetterFilter(
            ids=tuple(ids or ()),
            kind=self.kind,
            error=self.error,
            reason=self.reason,
            limit=limit,
            **time_range(self.since, self.until),
        )
        if self.search is None:
            return named
        return named.narrowed(dead_letters_only(ops.jobs.parse(self.search)))

    def filter_for_change(
        self, ops: Operator, ids: list[int] | None, limit: int
    ) -> DeadLetterFilter:
        """Return the selection of a change. An empty one would mean every dead letter."""
        which = self.filter(ops, ids, max(limit, len(ids or ())))
        if which.selects_all:
            filters = "--kind, --error, --reason, --since, --until or --search"
            raise ValueError(f"no dead letters selected; pass IDs, or {filters}")
        return which


@dataclass(frozen=True, slots=True)
class AnyStatusOptions:
    """The options that select dead letters of any status."""

    kind: Kind = None
    error: Error = None
    reason: Reason = None
    status: Status = "pending"
    since: Since = None
    until: Until = None
    search: Search = None

    @property
    def stored_status(self) -> StoredStatus | None:
        """The status, or None for all."""
        return None if self.status == "all" else self.status

    def filter(self, ops: Operator, ids: list[int] | None, limit: int | None) -> DeadLetterFilter:
        """Return the selection, without the status."""
        times = (self.since, self.until)
        pending = PendingOptions(self.kind, self.error, self.reason, *times, self.search)
        return pending.filter(ops, ids, limit)


@app.command("list")
def list_(*, which: AnyStatusOptions, limit: Limit = 50, options: ReadOptions) -> None:
    """List dead letters.

    Newest first.

    Examples:
        redrive dead list
        redrive dead list --kind crm.sync --error timeout --since 12h
        redrive dead list --search "order_id:17 user:ann"

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        selection, status = which.filter(ops, None, limit), which.stored_status
        letters = ops.dead_letters.find(selection, status=status)
        if options.as_json:
            print_json(letters)
        elif letters:
            is_cut = len(letters) == limit
            total = ops.dead_letters.count(selection, status=status) if is_cut else None
            _show_letters(letters, ops.now(), total)
        elif selection.selects_all and status == "pending":
            show(f"No dead letters. {ops.status().sentence}.")
        else:
            pending = up_to_limit(ops.dead_letters.count())
            unknown = unknown_kind(ops, selection.kind) or unknown_reason(ops, selection.reason)
            show(unknown or f"No dead letter matches; {pending} pending in total.")


def _show_letters(letters: Sequence[Letter], now: datetime, total: int | None) -> None:
    """Print dead letters. total: the number that match, if the list is cut."""
    reasons = top_counts(Counter(letter.reason for letter in letters))
    summary = f"{pluralise(len(letters), 'dead letter')}: {reasons}"
    if total is not None and total > len(letters):
        newest = f"the newest {len(letters):,}: {reasons}"
        summary = f"{up_to_limit(total)} dead letters match; {newest}"
    hint = expand_commands("`redrive dead show ID` shows one of them.")
    if total is not None:
        hint = showing(len(letters), total)
    has_several_states = len({letter.status for letter in letters}) > 1
    columns = [
        column for column in _letter_columns(now) if column.name != "status" or has_several_states
    ]
    print_table(columns, letters, above=summary, below=[hint])


def _letter_columns(now: datetime) -> list[Column[Letter]]:
    return [
        Column("id", lambda letter: str(letter.id), is_number=True),
        Column("job type", lambda letter: letter.kind, min_width=14),
        Column("status", lambda letter: letter.status),
        Column("reason", _reason, min_width=10, max_width=24, truncate=True),
        Column("attempts", lambda letter: str(letter.attempts), is_number=True, drop_order=2),
        Column("dead since", lambda letter: ago(letter.died_at, now)),
        Column("UTC", lambda letter: utc(letter.died_at), drop_order=3),
        Column("error", _error, min_width=14, wanted_width=28, truncate=True, drop_order=1),
    ]


def _reason(letter: Letter) -> str:
    return f"{letter.reason} (blocked)" if letter.blocked else letter.reason


def _error(letter: Letter) -> str | None:
    return _ERROR_MODULE.sub("", first_line((letter.error or "").strip()) or "") or None


@app.command("show")
def show_(
    *,
    letter_id: Annotated[int, typer.Argument(metavar="ID", help="ID of the dead letter")],
    options: ReadOptions,
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
    with open_operator(options) as ops:
        report = ops.dead_letters.get(letter_id)
    if report is None:
        fail(NOT_DONE, f"dead letter {letter_id}: not found; {LISTS_ALL}")
    print_result(report, options.as_json, _report)


def _report(report: LetterReport) -> Group:
    letter, now = report.letter, report.now
    until = both(letter.blocked_until, now) if letter.blocked_until else "it is replayed"
    has_died_again = letter.replay_count and letter.died_at > letter.created_at
    sections = [
        *named_values("Headers", report.headers),
        *named_values("Correlation ids", report.ids),
        *payload_section(report.payload, report.payload_bytes),
    ]
    for job in report.jobs:
        sections += section(_job_title(job), _attempts(job, now))
    if letter.status == "pending":
        sections += ["", *_next_commands(letter)]
    return detail_view(
        f"Dead letter {letter.id}",
        {
            "job type": letter.kind,
            "job key": letter.key,
            "status": letter.status + _replays(letter.replay_count),
            "edited": _edited(report),
            "reason": letter.reason,
            "blocked": f"until {until}" if letter.blocked else None,
            "error": letter.error or "–",
            "signature": letter.signature or None,
            "dead since": both(letter.died_at, now),
            "first dead": both(letter.created_at, now) if has_died_again else None,
            "last attempt": both(letter.last_attempt_at, now),
            "source": f"{letter.source} {letter.source_id or ''}".rstrip()
            if letter.source
            else None,
        },
        *sections,
    )


def _next_commands(letter: Letter) -> list[RenderableType]:
    """Return the commands for the next step, without one that would fail again."""
    commands = {
        "replay": f'redrive dead replay {letter.id} --because "..."',
        "discard": f'redrive dead discard {letter.id} --because "..."',
    }
    if letter.reason == "undecodable":
        commands["replay"] = f'redrive dead export {letter.id} --raw --because "..."'
    elif letter.reason == "payload_lost":
        del commands["replay"]
    return [*replay_note(letter.reason), suggestion(*commands.values())]


def _edited(report: LetterReport) -> str | None:
    """Say which replays had another payload than the one that is shown."""
    jobs = report.edited_jobs
    if not jobs:
        return None
    names = f"{'job' if len(jobs) == 1 else 'jobs'} {', '.join(map(str, jobs))}"
    shows = expand_commands(f"`redrive jobs show {jobs[-1]}`")
    return f"payload of {names}; {shows} has it. The payload below is the original"


def _replays(count: int) -> str:
    return "" if not count else ", replayed once" if count == 1 else f", replayed {count} times"


def _job_title(job: ReplayChainJob) -> str:
    edited = f", payload edited by {job.edited_by}" if job.edited_by is not None else ""
    replay = f" (replay of job {job.replay_of}{edited})" if job.replay_of is not None else ""
    crashes = f", {job.crashes} crashed" if job.crashes else ""
    attempts = pluralise(job.attempts, "attempt")
    return f"Job {job.id}{replay}: {state_name(job.state)}, {attempts}{crashes}"


def _attempts(job: ReplayChainJob, now: datetime) -> RenderableType:
    if job.tries:
        return attempt_table(job.tries, now)
    is_open = job.ended_at is None
    when = f"due {both(job.due_at, now)}" if is_open else f"ended {both(job.ended_at, now)}"
    return Text(f"No failed attempt; {when}", style="dim")


@app.command()
def replay(
    *,
    because: Because,
    ids: Ids = None,
    which: PendingOptions,
    limit: Limit = 100,
    confirmation: Confirmation,
    rate: Rate = None,
    canary: Canary = 0,
    max_replays: MaxReplays = MAX_REPLAYS,
    fresh: Annotated[bool, flag("--fresh", "Repeat the finished steps of the jobs")] = False,
    detach: Detach = False,
    edit: Annotated[
        str | None,
        option("--edit", "FILE", "File with a new payload for one dead letter (-: standard input)"),
    ] = None,
    payload: Annotated[
        str | None, option("--payload", "TEXT", "New payload for one dead letter")
    ] = None,
    as_kind: Annotated[
        str | None, option("--as", "NAME", "New name of a renamed command or handler")
    ] = None,
    options: WriteOptions,
) -> None:
    """Replay dead letters.

    Enqueues a new job for each dead letter, under the same job key. Select by ID, or by --kind,
    --error, --reason, --since, --until or --search. A selection without IDs needs confirmation:
    type the number at the prompt, or pass --yes --max N.

    The selection is recorded as a sweep before the first replay. If this process is killed, workers
    continue the sweep. --edit and --payload replay one dead letter with a new payload. The dead
    letter keeps the original, and the audit log records both hashes.

    --as replays dead letters of a renamed command or handler under its new name, with the same job
    key. It needs the app (--ledger module:app), which checks each payload against the new
    signature. Payloads that do not fit are skipped.

    A replay reuses the results of finished steps and the last checkpoint. --fresh repeats the
    steps.

    Examples:
        redrive dead replay 42 --because "CRM is back"
        redrive dead replay --kind crm.sync --since 12h --canary 5 --because "INC-42"
        redrive dead replay --kind crm.sync --yes --max 500 --because "INC-42"
        redrive dead replay --kind crm.sync --as crm.push --because "renamed"

    Exit codes:
        0: all replayed
        1: some or none replayed; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    is_edited = edit is not None or payload is not None
    with open_operator(options, app_first=is_edited or as_kind is not None) as ops:
        if is_edited and as_kind is not None:
            refuse_option("--as", "cannot be combined with --edit or --payload; pass only one")
        if is_edited:
            changed = _read_payload(edit, payload)
            _replay_edited(ops, ids or [], changed, because, max_replays, as_json=options.as_json)
            return
        selection = which.filter_for_change(ops, ids, limit)
        plan = ops.dead_letters.replay(selection, as_kind=as_kind)
        apply = ApplyOptions(because, confirmation, options.as_json, detach, is_by_id=bool(ids))
        limits = {"canary": canary, "max_replays": max_replays or None, "fresh": fresh}
        apply_plan(ops, plan, apply, rate=rate, **limits)


def _read_payload(file: str | None, text: str | None) -> bytes:
    if file is not None and text is not None:
        refuse_option("--edit, --payload", "pass only one of them")
    if text is not None:
        return text.encode()
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file or "").read_bytes()
    except OSError as error:
        refuse_option("--edit", f"{file} cannot be read: {error.strerror}")


def _replay_edited(
    ops: Operator, ids: list[int], payload: bytes, because: str, max_replays: int, *, as_json: bool
) -> None:
    if len(ids) != 1:
        refuse_option("--edit, --payload", "needs the ID of one dead letter")
    (letter_id,) = ids
    limit = max_replays or None
    job_id = ops.dead_letters.replay_edited(letter_id, payload, because=because, max_replays=limit)
    if as_json:
        print_json({"done": {str(letter_id): job_id}, "edited": ids})
    else:
        show(f"Dead letter {letter_id} replayed with a new payload as job {job_id}")


@app.command()
def export(
    *,
    ids: Ids = None,
    which: AnyStatusOptions,
    limit: Annotated[
        int | None, option("--limit", "N", "Maximum number of dead letters (default: all)")
    ] = None,
    raw: Annotated[bool, flag("--raw", "Include secrets (needs --because)")] = False,
    because: RawBecause = None,
    options: WriteOptions,
) -> None:
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
    require_reason_for_raw(raw, because)
    with open_operator(options, changes=raw) as ops:
        selection, status = which.filter(ops, ids, limit), None if ids else which.stored_status
        letters = ops.dead_letters.export(selection, status=status, because=because)
        printed: set[int] = set()
        if options.as_json:
            documents = list(letters)
            print_json(documents)
            printed |= {letter["id"] for letter in documents}
        else:
            for letter in letters:
                print_json_line(letter)
                printed.add(letter["id"])
        unknown = None
        if not printed:
            unknown = unknown_kind(ops, selection.kind) or unknown_reason(ops, selection.reason)
        if unknown is not None:
            complain(unknown)
        missing = [str(each) for each in dict.fromkeys(ids or ()) if each not in printed]
        if missing:
            fail(NOT_DONE, f"dead letters not found: {', '.join(missing)}; {LISTS_ALL}")


@app.command()
def discard(
    *,
    because: Because,
    ids: Ids = None,
    which: PendingOptions,
    limit: Limit = 100,
    confirmation: Confirmation,
    rate: Rate = None,
    detach: Detach = False,
    options: WriteOptions,
) -> None:
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
    with open_operator(options) as ops:
        plan = ops.dead_letters.discard(which.filter_for_change(ops, ids, limit))
        apply = ApplyOptions(because, confirmation, options.as_json, detach, is_by_id=bool(ids))
        apply_plan(ops, plan, apply, rate=rate)
