"""`redrive jobs cancel`, `run-now`, `reschedule` and `prioritise`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Literal

import typer

from ...ops import JobFilter, Plan
from ...ops.operator import Operator
from ...ops.render import parse_future_time, utc
from ..apply.confirm import ApplyOptions, Confirmation
from ..apply.dead_letters import Detach, Rate, apply_plan
from ..errors import refuse_option
from ..options import (
    JOB_STATES,
    Because,
    Kind,
    Since,
    Until,
    WriteOptions,
    argument,
    limit_option,
    open_operator,
    option,
    state_option,
    time_range,
)
from ..render import show

Ids = Annotated[list[int] | None, argument("ID", "IDs of jobs")]
UNFINISHED = {
    word: JOB_STATES[word] for word in ("queued", "running", "retry scheduled", "replaying")
} | {"waiting": "waiting"}
State = Annotated[
    Literal["queued", "running", "retry_wait", "replaying", "waiting"] | None,
    state_option("--state", UNFINISHED, "Only this state"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """The options of each command that changes jobs: why, which of them, and how fast."""

    because: Because
    ids: Ids = None
    kind: Kind = None
    state: State = None
    key: Annotated[str | None, option("--key", "KEY", "Only this job key")] = None
    key_prefix: Annotated[
        str | None, option("--key-prefix", "TEXT", "Only job keys that begin with this text")
    ] = None
    worker: Annotated[str | None, option("--worker", "NAME", "Only jobs of this worker")] = None
    since: Since = None
    until: Until = None
    search: Annotated[
        str | None,
        option("--search", "WORDS", "Only jobs that match, in the words of `redrive find`"),
    ] = None
    limit: Annotated[int, limit_option("jobs")] = 100
    rate: Rate = None
    detach: Detach = False

    def filter(self, ops: Operator) -> JobFilter:
        """Return the selection. An empty one would mean every job."""
        wanted = JobFilter(
            ids=tuple(self.ids or ()),
            kind=self.kind,
            state=self.state,
            key=self.key,
            key_prefix=self.key_prefix,
            worker=self.worker,
            **time_range(self.since, self.until),
        )
        if self.search is not None:
            words = ops.jobs.parse(self.search).as_dict()
            duplicates = sorted(words.keys() & wanted.as_dict().keys())
            if duplicates:
                refuse_option("--search", f"{duplicates[0]}: specified twice; use it once")
            wanted = replace(wanted, **words)
        if wanted.selects_all:
            filters = "--kind, --state, --key, --key-prefix, --worker, --since, --until or --search"
            refuse_option("ID", f"pass IDs of jobs, or {filters}")
        return wanted


def cancel(*, change: ChangeOptions, confirmation: Confirmation, options: WriteOptions) -> None:
    """Cancel jobs.

    A queued, scheduled or waiting job is cancelled at once. A running job is asked to stop: an
    async function is cancelled within about a second, and a sync function reads
    current().cancelled. If the function returns all the same, the job is done.

    A cancelled job frees its key: the next submission creates a new job. Select by ID, or by
    options. A selection without IDs needs confirmation: type the number at the prompt, or pass
    --yes --max N.

    Examples:
        redrive jobs cancel 42 --because "wrong order"
        redrive jobs cancel --kind crm.sync --state queued --because "INC-42"
        redrive jobs cancel --search "user:ann error:timeout" --because "INC-42"
        redrive jobs cancel --key-prefix shop:ann: --yes --max 50 --because "INC-42"

    Exit codes:
        0: all cancelled, or asked to stop
        1: some or none cancelled; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    _apply(
        lambda ops, wanted, limit: ops.jobs.cancel(wanted, limit=limit),
        change,
        confirmation,
        options,
    )


def run_now(*, change: ChangeOptions, confirmation: Confirmation, options: WriteOptions) -> None:
    """Run queued jobs now.

    Makes scheduled jobs and retries due. A sleeping job wakes up. A job that waits for a signal is
    skipped. Priorities, limits and pauses still apply.

    Examples:
        redrive jobs run-now 42 --because "the customer waits"
        redrive jobs run-now --kind crm.sync --state "retry scheduled" --because "CRM is back"

    Exit codes:
        0: all due now
        1: some or none changed; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """

    def plan(ops: Operator, wanted: JobFilter, limit: int) -> Plan:
        planned = ops.jobs.run_now(wanted, limit=limit)
        if not options.as_json:
            _show_pauses(ops, planned.kinds)
        return planned

    _apply(plan, change, confirmation, options)


def reschedule(
    *,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            "--in",
            metavar="WHEN",
            help="New time, such as 30min or 2h from now, or 2026-01-31T12:30 (UTC)",
        ),
    ],
    change: ChangeOptions,
    confirmation: Confirmation,
    options: WriteOptions,
) -> None:
    """Change when queued jobs are due.

    A sleeping job wakes up at the new time. For a job that waits for a signal, the new time is the
    end of its wait.

    Examples:
        redrive jobs reschedule 42 --in 2h --because "CRM maintenance"
        redrive jobs reschedule --kind crm.sync --at 2026-01-31T12:30 --because "INC-42"

    Exit codes:
        0: all rescheduled
        1: some or none changed; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    _apply(
        lambda ops, wanted, limit: ops.jobs.reschedule(wanted, _due(ops, at), limit=limit),
        change,
        confirmation,
        options,
    )


def prioritise(
    *,
    priority: Annotated[
        int, option("--priority", "N", "Priority, from -2 (first) to 2 (last)", min=-2, max=2)
    ],
    change: ChangeOptions,
    confirmation: Confirmation,
    options: WriteOptions,
) -> None:
    """Change the priority of queued jobs.

    Among due jobs of one job type, a lower number runs first. A quarantined job is skipped.

    Examples:
        redrive jobs prioritise 42 --priority -2 --because "the customer waits"
        redrive jobs prioritise --kind crm.sync --priority 2 --because "bulk import"

    Exit codes:
        0: all changed
        1: some or none changed; the skipped ones are listed with the reason
        2: invalid option, or no selection
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    _apply(
        lambda ops, wanted, limit: ops.jobs.prioritise(wanted, priority, limit=limit),
        change,
        confirmation,
        options,
    )


def _apply(
    plan: Callable[[Operator, JobFilter, int], Plan],
    change: ChangeOptions,
    confirmation: Confirmation,
    options: WriteOptions,
) -> None:
    """Plan a change of the selected jobs, confirm it and run it."""
    ids = change.ids or ()
    with open_operator(options) as ops:
        planned = plan(ops, change.filter(ops), max(change.limit, len(ids)))
        apply = ApplyOptions(
            change.because, confirmation, options.as_json, change.detach, is_by_id=bool(ids)
        )
        apply_plan(ops, planned, apply, rate=change.rate)


def _show_pauses(ops: Operator, kinds: Collection[str]) -> None:
    """Say that jobs of these types stay queued while they are paused by hand."""
    for pause in ops.pauses.find() if kinds else ():
        if pause.scope == "app" or (pause.scope == "job type" and pause.name in kinds):
            subject = pause.subject[0].upper() + pause.subject[1:]
            show(f"{subject} is {pause.says}. Its jobs stay queued.", style="yellow")


def _due(ops: Operator, text: str) -> datetime:
    now = ops.now()
    try:
        due = parse_future_time(text, now)
    except ValueError as error:
        refuse_option("--at / --in", str(error))
    if due < now:
        past = f"{utc(due)} UTC has passed; use a time to come, or run-now"
        refuse_option("--at / --in", past)
    return due
