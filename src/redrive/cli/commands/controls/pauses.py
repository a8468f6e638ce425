"""`redrive pause` and `redrive resume`: the app, job types, sources and schedules, by hand."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from ....ops.controls.model import PauseLine, Scope, resume_command, subject_of
from ....ops.render import ago, parse_future_time, utc
from ...command import CommandGroup
from ...errors import refuse_option
from ...options import Because, ReadOptions, WriteOptions, argument, flag, open_operator, option
from ...render import Column, print_json, print_result, print_rows, show, suggestion

pausing = CommandGroup(help="Pause job types, sources, schedules.")
resuming = CommandGroup(help="Resume job types, sources, schedules.")

NEEDS_APP: frozenset[Scope] = frozenset(("source", "schedule"))
"""Scopes with names that the app of the configuration knows, and a new ledger does not."""
PauseUntil = Annotated[
    str | None,
    option(
        "--until",
        "WHEN",
        "End of the pause, such as 30min, 2h or 2026-01-31T12:30 (UTC; default: until resumed)",
    ),
]
Force = Annotated[bool, flag("--force", "Accept an unknown name")]
JobTypeName = Annotated[str, argument("NAME", "Job type, such as crm.sync")]
SourceName = Annotated[str, argument("NAME", "Source of events or of datasets")]
ParkedName = Annotated[str, argument("NAME", "Job type or source, such as crm.sync")]
ScheduleName = Annotated[
    str, argument("NAME", "Job type of the command, or name of the dataset such as crm/orders")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOptions:
    """The options of each command that pauses something."""

    until: PauseUntil = None
    because: Because


@pausing.command("list")
def list_(*, options: ReadOptions) -> None:
    """List pauses by hand.

    Job types that are paused after an outage are not listed: `redrive overview` shows them.

    Examples:
        redrive pause list
        redrive pause list --json

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        pauses, now = ops.pauses.find(), ops.now()
    print_rows(pauses, options.as_json, _columns(now), empty="Nothing is paused by hand.")


@pausing.command("app")
def pause_whole_app(*, pause: PauseOptions, options: WriteOptions) -> None:
    """Pause the whole app.

    No worker starts a job or a partition, reads a source or fires a schedule. Running jobs finish.
    Submitted jobs are accepted and queued.

    Examples:
        redrive pause app --until 30min --because "database migration"
        redrive pause app --because "INC-42"

    Exit codes:
        0: paused
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _pause("app", "", pause, options)


@pausing.command("job-type")
def pause_job_type(
    *, name: JobTypeName, pause: PauseOptions, force: Force = False, options: WriteOptions
) -> None:
    """Pause a job type.

    No worker starts its jobs. Running jobs finish, and submitted jobs are queued.

    Examples:
        redrive pause job-type crm.sync --until 2h --because "CRM is migrated"
        redrive pause job-type crm.sync --because "INC-42"

    Exit codes:
        0: paused
        1: unknown job type
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _pause("job type", name, pause, options, force=force)


@pausing.command("source")
def pause_source(
    *, name: SourceName, pause: PauseOptions, force: Force = False, options: WriteOptions
) -> None:
    """Pause a source of events or of datasets.

    Workers read no messages of it, which stay in the stream, and start none of its partitions.

    Examples:
        redrive pause source orders --until 2h --because "INC-42"
        redrive pause source crm --because "CRM is migrated"

    Exit codes:
        0: paused
        1: unknown source
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _pause("source", name, pause, options, force=force)


@pausing.command("schedule")
def pause_schedule(
    *, name: ScheduleName, pause: PauseOptions, force: Force = False, options: WriteOptions
) -> None:
    """Pause a schedule.

    After the pause, a command makes up for all missed runs with one run, and a dataset with one
    run for each missed day.

    Examples:
        redrive pause schedule nightly.report --until 7d --because "holidays"
        redrive pause schedule crm/orders --because "INC-42"

    Exit codes:
        0: paused
        1: unknown schedule
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _pause("schedule", name, pause, options, force=force)


@resuming.command("app")
def resume_whole_app(*, because: Because, options: WriteOptions) -> None:
    """Resume the whole app.

    Job types, sources and schedules that are paused by themselves stay paused.

    Examples:
        redrive resume app --because "migration is done"

    Exit codes:
        0: resumed
        1: not paused
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _resume("app", "", because, options)


@resuming.command("job-type")
def resume_job_type(*, name: JobTypeName, because: Because, options: WriteOptions) -> None:
    """Resume a job type that was paused by hand.

    Examples:
        redrive resume job-type crm.sync --because "CRM is back"

    Exit codes:
        0: resumed
        1: not paused by hand
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _resume("job type", name, because, options)


@resuming.command("source")
def resume_source(*, name: SourceName, because: Because, options: WriteOptions) -> None:
    """Resume a source that was paused by hand.

    Examples:
        redrive resume source orders --because "handler is fixed"

    Exit codes:
        0: resumed
        1: not paused by hand
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _resume("source", name, because, options)


@resuming.command("schedule")
def resume_schedule(*, name: ScheduleName, because: Because, options: WriteOptions) -> None:
    """Resume a schedule that was paused by hand.

    Examples:
        redrive resume schedule nightly.report --because "report is fixed"

    Exit codes:
        0: resumed
        1: not paused by hand
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    _resume("schedule", name, because, options)


@resuming.command("parked")
def resume_parked(*, name: ParkedName, because: Because, options: WriteOptions) -> None:
    """Resume a job type or source after an outage.

    Workers would resume it by themselves after a successful probe. If the service is still down,
    they pause it again.

    Examples:
        redrive resume parked crm.sync --because "CRM is back"
        redrive resume parked crm --because "CRM is back"

    Exit codes:
        0: resumed
        1: not paused after an outage
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        scopes = ops.pauses.unpark(name, because=because)
    _show_resumed(", ".join(subject_of(scope, name) for scope in scopes), options)


def _pause(
    scope: Scope, name: str, pause: PauseOptions, options: WriteOptions, *, force: bool = False
) -> None:
    with open_operator(options, app_first=scope in NEEDS_APP) as ops:
        try:
            end = None if pause.until is None else parse_future_time(pause.until, ops.now())
        except ValueError as error:
            refuse_option("--until", str(error))
        line = ops.pauses.pause(scope, name, until=end, because=pause.because, force=force)
    subject = line.subject[0].upper() + line.subject[1:]
    print_result(line, options.as_json, lambda each: f"{subject}: {each.says}")
    if not options.as_json:
        if line.replaced is not None:
            show(f"It replaces an earlier pause: {line.replaced}", style="yellow")
        show(suggestion(resume_command(line.scope, line.name)))


def _resume(scope: Scope, name: str, because: str, options: WriteOptions) -> None:
    with open_operator(options, app_first=scope in NEEDS_APP) as ops:
        ops.pauses.resume(scope, name, because=because)
    _show_resumed(subject_of(scope, name), options)


def _show_resumed(subject: str, options: WriteOptions) -> None:
    if options.as_json:
        print_json({"resumed": subject})
    else:
        show(f"Resumed: {subject}")


def _columns(now: datetime) -> list[Column[PauseLine]]:
    return [
        Column("scope", lambda pause: pause.scope),
        Column("name", lambda pause: pause.name or None, min_width=14),
        Column("paused", lambda pause: ago(pause.paused_at, now)),
        Column("until", lambda pause: "resumed" if pause.until is None else utc(pause.until)),
        Column("by", lambda pause: pause.actor),
        Column("because", lambda pause: pause.because, min_width=12, truncate=True),
    ]
