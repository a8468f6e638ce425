"""`redrive failures`: failed jobs by type and error, failed partitions by dataset and reason."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.dead_letters.model import Letter
from ...ops.overview.failures import Failure, FailureReport
from ...ops.partitions.overview import Rejection
from ...ops.render import ago, both
from ..errors import NOT_DONE, fail
from ..options import (
    Kind,
    ReadOptions,
    Since,
    Until,
    argument,
    limit_option,
    open_operator,
    time_range,
)
from ..render import (
    Column,
    console,
    count_or_dash,
    detail_view,
    dim,
    heading,
    print_json,
    replay_note,
    responsive_table,
    section,
    show,
    showing,
    suggestion,
)
from ..render.charts import pair_sums, sparkline
from ..suggestions import complete_command, expand_commands
from ..unknown_names import unknown_kind

MAX_SEARCHED = 500
"""Groups that are searched for WORDS."""
MAX_LETTERS = 20


def failures(
    *,
    words: Annotated[str | None, argument("WORDS", "Text of the error of one group")] = None,
    kind: Kind = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, limit_option("groups")] = 25,
    options: ReadOptions,
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
    with open_operator(options) as ops:
        max_groups = limit if words is None else MAX_SEARCHED
        times = time_range(since, until)
        jobs = ops.overview.failures(kind=kind, **times, limit=max_groups)
        partitions = ops.overview.rejections(dataset=kind, **times, limit=max_groups)
        now = ops.now()
        group = None if words is None else _find_group(jobs, partitions, words)
        report = None
        unknown = None if jobs or partitions else unknown_kind(ops, kind, or_dataset=True)
        if isinstance(group, Failure):
            report = ops.overview.failure(group.kind, group.signature)
    width = console().width
    if group is not None and options.as_json:
        print_json(report or group)
    elif isinstance(group, Rejection):
        show(_partition_groups([group], now, width))
    elif report is not None:
        show(_report(report, width))
    elif options.as_json:
        print_json({"jobs": jobs, "partitions": partitions})
    elif jobs or partitions:
        parts = [_job_groups(jobs, now, width, is_cut=len(jobs) == limit)] if jobs else []
        parts += [_partition_groups(partitions, now, width)] if partitions else []
        show(Group(*([parts[0], "", parts[1]] if len(parts) == 2 else parts)))
    else:
        is_filtered = kind or since or until
        no_match = unknown or "No failure matches."
        show(no_match if is_filtered else "No failures in the last 31 days.")


def _find_group(
    jobs: Sequence[Failure], partitions: Sequence[Rejection], words: str
) -> Failure | Rejection:
    """Return the only group whose error contains the words. A whole signature comes first."""
    matches: list[Failure | Rejection] = [group for group in jobs if group.signature == words]
    if not matches:
        text = words.casefold()
        matches += [
            group for group in jobs if text in f"{group.signature}\n{group.error or ''}".casefold()
        ]
        matches += [
            group for group in partitions if text in f"{group.why}\n{group.error or ''}".casefold()
        ]
    if not matches:
        fail(NOT_DONE, f"{words!r}: no group matches; `redrive failures` lists the groups")
    if len(matches) > 1:
        problem = f"{words!r}: {len(matches):,} groups match; pass --kind, or more of the error"
        fail(NOT_DONE, problem, *map(_group_name, matches[:5]))
    return matches[0]


def _group_name(group: Failure | Rejection) -> str:
    if isinstance(group, Failure):
        return f"{group.kind}: {group.signature or 'no signature'}"
    return f"{group.name}: {group.why}"


def _job_groups(groups: Sequence[Failure], now: datetime, width: int, *, is_cut: bool) -> Group:
    hint = expand_commands('`redrive failures "TEXT"` shows one of them.')
    note = showing(len(groups)) if is_cut else hint
    return Group(responsive_table(_job_columns(now), groups, width), "", dim(note))


def _job_columns(now: datetime) -> list[Column[Failure]]:
    return [
        Column("dead", lambda group: count_or_dash(group.pending, "red"), is_number=True),
        Column("failed 1h", _failed_last_hour, is_number=True),
        Column("24 h", _failed_last_day, drop_order=1),
        Column("last", lambda group: ago(group.last_at, now), drop_order=2),
        Column("job type", lambda group: group.kind, min_width=12),
        Column("job", lambda group: str(group.job_id or "–"), is_number=True, drop_order=3),
        Column(
            "error",
            lambda group: group.signature or group.error or None,
            min_width=20,
            wanted_width=28,
            truncate=True,
        ),
    ]


def _failed_last_hour(group: Failure) -> Text:
    return count_or_dash(group.trend.hour, "yellow" if group.trend.is_growing else "")


def _failed_last_day(group: Failure) -> Text:
    bars = sparkline(pair_sums(group.trend.hours))
    return Text(bars, style="yellow" if group.trend.hour else "dim")


def _report(report: FailureReport, width: int) -> Group:
    failure, now = report.failure, report.now
    blocked = f", {failure.blocked:,} of them blocked" if failure.blocked else ""
    attempts, died = pluralise(failure.tries, "attempt"), pluralise(failure.died, "dead letter")
    rising = ", rising" if failure.trend.is_growing else ""
    last_hour = f"{failure.trend.hour:,} in the last hour{rising}"
    has_example = failure.error and failure.error != failure.signature
    sample = complete_command(f"redrive jobs show {failure.job_id}")
    return detail_view(
        failure.signature or "(no message)",
        {
            "job type": failure.kind,
            "example": failure.error if has_example else None,
            "pending": pluralise(failure.pending, "dead letter") + blocked,
            "failed": f"{attempts}, {died}",
            "first seen": both(failure.first_at, now),
            "last seen": both(failure.last_at, now),
            "24 h": f"{sparkline(failure.trend.hours)}  {last_hour}",
            "sample": None if failure.job_id is None else sample,
        },
        *(_letters(report, width) if report.letters else ()),
    )


def _letters(report: FailureReport, width: int) -> list[RenderableType]:
    failure = report.failure
    columns, letters = _letter_columns(report.now), report.letters[:MAX_LETTERS]
    table = responsive_table(columns, letters, width - 2)
    which = f"--kind {shlex.quote(failure.kind)} --error {shlex.quote(failure.signature)}"
    replay = suggestion(f'redrive dead replay {which} --canary 5 --because "..."')
    notes = replay_note(letters[0].reason)
    return [*section("Dead letters, newest first", table), "", *notes, replay]


def _letter_columns(now: datetime) -> list[Column[Letter]]:
    return [
        Column("id", lambda letter: str(letter.id), is_number=True),
        Column("dead since", lambda letter: ago(letter.created_at, now)),
        Column("attempts", lambda letter: str(letter.attempts), is_number=True, drop_order=1),
        Column("job key", lambda letter: letter.key, min_width=12, truncate=True),
    ]


def _partition_groups(groups: Sequence[Rejection], now: datetime, width: int) -> Group:
    """Return failed partitions by dataset and reason, and the command that lists them."""
    command = "redrive state failures"
    if len(groups) == 1:
        (group,) = groups
        # A partition can give up without a verdict, and then has no reason.
        reason = None if group.reason is None else shlex.quote(group.reason)
        which = "--terminal" if reason is None else f"--reason {reason}"
        command = f"{command} {shlex.quote(group.name)} {which}"
    table = responsive_table(_partition_columns(now), groups, width)
    return Group(heading("Partitions"), table, "", suggestion(command))


def _partition_columns(now: datetime) -> list[Column[Rejection]]:
    def count(group: Rejection) -> Text:
        return Text(f"{group.many:,}{'+' if group.more else ''}", style="yellow")

    return [
        Column("failed", count, is_number=True),
        Column(
            "gave up",
            lambda group: count_or_dash(group.terminal, "red"),
            is_number=True,
            drop_order=1,
        ),
        Column(
            "older run readable",
            lambda group: count_or_dash(group.readable),
            is_number=True,
            drop_order=3,
        ),
        Column("last", lambda group: ago(group.last_at, now), drop_order=2),
        Column("dataset", lambda group: group.name, min_width=12),
        Column("reason", lambda group: group.why, min_width=12),
        Column(
            "example",
            lambda group: group.error or group.partition,
            min_width=20,
            wanted_width=28,
            truncate=True,
            drop_order=4,
        ),
    ]
