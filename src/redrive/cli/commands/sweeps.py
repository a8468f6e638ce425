"""`redrive sweeps`: list, show and control bulk operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, NoReturn, Protocol, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import format_duration, pluralise
from ...ops import Sweep
from ...ops.operator import Operator
from ...ops.render import ago, both
from ...ops.sweeps import (
    IN_PROGRESS,
    PAST_TENSES,
    SweepOutcome,
    SweepReport,
    describe_progress,
    time_left,
)
from ..apply.confirm import Confirmation, Max, Yes
from ..apply.dead_letters import Detach, run_sweep
from ..command import CommandGroup
from ..errors import INTERRUPTED, NOT_DONE, complain, fail
from ..options import Because, ReadOptions, WriteOptions, limit_option, open_operator
from ..render import (
    Column,
    console,
    cut_note,
    detail_view,
    dim,
    print_json,
    print_result,
    print_rows,
    responsive_table,
    show,
    showing,
    state_name,
    suggestion,
)
from ..render.progress import Follower, TimedReport, sweep_bar

app = CommandGroup(help="Control bulk replays and discards.")

SweepId = Annotated[int, typer.Argument(metavar="ID", help="ID of the sweep")]
Limit = Annotated[int, limit_option("sweeps")]
OutcomeLimit = Annotated[int, limit_option("outcomes")]


@app.command("list")
def list_(*, limit: Limit = 20, options: ReadOptions) -> None:
    """List sweeps.

    A sweep is a bulk replay or discard of dead letters. Backfills and other bulk operations on
    partitions are listed too. Newest first.

    Examples:
        redrive sweeps list
        redrive sweeps list --limit 5 --json

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        sweeps = ops.sweeps.find(limit=limit)
        total = ops.sweeps.count() if len(sweeps) == limit else None
        print_sweeps(ops, sweeps, total, options.as_json, empty="No sweeps.")


def print_sweeps(
    ops: Operator, sweeps: Sequence[Sweep], total: int | None, as_json: bool, *, empty: str
) -> None:
    """Print sweeps or backfills. total: the number of all, if the list is cut."""
    note = cut_note(len(sweeps), total)
    print_rows(sweeps, as_json, sweep_columns(ops.now()), empty=empty, below=[note])


def sweep_columns(now: datetime) -> list[Column[Sweep]]:
    """Return the columns of a list of sweeps or backfills."""
    return [
        Column("id", lambda sweep: str(sweep.id), is_number=True),
        Column("action", lambda sweep: sweep.act),
        Column("state", lambda sweep: sweep.state),
        Column("progress", sweep_bar, drop_order=2),
        Column("processed", lambda sweep: f"{sweep.made + sweep.skipped:,}", is_number=True),
        Column("total", lambda sweep: f"{sweep.total:,}", is_number=True),
        Column("started", lambda sweep: ago(sweep.created_at, now)),
        Column("by", lambda sweep: sweep.actor, min_width=6, truncate=True, drop_order=1),
        Column(
            "because",
            lambda sweep: sweep.because,
            min_width=14,
            wanted_width=20,
            truncate=True,
            drop_order=3,
        ),
    ]


@app.command("show")
def show_(
    *,
    sweep_id: SweepId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Progress until the sweep ends")
    ] = False,
    limit: OutcomeLimit = 20,
    options: ReadOptions,
) -> None:
    """Show the progress of a sweep.

    Shows how many dead letters are processed, the state of their jobs, the time left, and the
    outcome of each. With --follow the progress is updated until the sweep ends. In a pipe or a
    file, --follow prints a line for each change, and with --json each line is one document. Ctrl+C
    ends only --follow, and the sweep continues. A sweep over partitions is shown as by `redrive
    backfill status`.

    Examples:
        redrive sweeps show 7
        redrive sweeps show 7 --follow

    Exit codes:
        0: shown; with --follow, the sweep is done
        1: no sweep with this ID; with --follow, the sweep did not end as done
        2: invalid option
        3: ledger not reachable, or its schema is from another version
        130: --follow was interrupted; the sweep continues
    """
    with open_operator(options) as ops:
        report = ops.sweeps.get(sweep_id, limit=limit)
        if report is None:
            fail(NOT_DONE, f"sweep {sweep_id}: not found; `redrive sweeps list` lists sweeps")
        stop = f'to stop the sweep: `redrive sweeps pause {sweep_id} --because "..."`'
        hints = (f"redrive sweeps show {sweep_id} --follow", stop)
        if report.sweep.act not in PAST_TENSES and not options.as_json:
            from .partitions.render import progress_follower  # noqa: PLC0415  # 150 ms for lists

            progress = ops.backfills.progress(sweep_id)
            assert progress is not None
            of_partitions = progress_follower(ops, sweep_id)
            print_progress(ops, progress, of_partitions, hints, follow=follow, as_json=False)
        follower = Follower[SweepReport](
            read=lambda: ops.sweeps.get(sweep_id, limit=limit),
            is_running=lambda report: report.sweep.state == "running",
            draw=_report,
            line=lambda report: f"{_state(report)}; {describe_progress(report.sweep, report.jobs)}",
        )
        print_progress(ops, report, follower, hints, follow=follow, as_json=options.as_json)


class ProgressReport(TimedReport, Protocol):
    """The progress of a sweep."""

    @property
    def sweep(self) -> Sweep:
        """The sweep."""


P = TypeVar("P", bound=ProgressReport)


def print_progress(
    ops: Operator,
    report: P,
    follower: Follower[P],
    hints: Sequence[str],
    *,
    follow: bool,
    as_json: bool,
) -> NoReturn:
    """Print the progress of a sweep, once or until it ends, and end the command.

    Args:
        ops: The operator.
        report: The progress now.
        follower: How the progress is read and printed.
        hints: The next commands after Ctrl+C.
        follow: Whether the sweep is followed until it ends.
        as_json: Print JSON.
    """
    is_interrupted = False
    if follow:
        report, is_interrupted = follower.follow(report, as_json=as_json)
    sweep = report.sweep
    if not as_json:
        show(follower.draw(report, console().width))
        stop = ops.sweeps.stopped_by(sweep)
        if stop is not None:
            time = both(stop.at, ops.now())
            show(f"{sweep.state.capitalize()} by {stop.actor}, {time}: {stop.because}")
        missing_worker = ops.workers.missing() if sweep.state == "running" else None
        if missing_worker is not None:
            complain(f"{missing_worker}; the rest waits for a worker", "redrive work module:app")
    elif not follow:
        print_json(report)
    if is_interrupted:
        name = "sweep" if sweep.act in PAST_TENSES else sweep.act
        fail(INTERRUPTED, f"stopped watching; {name} {sweep.id} continues", *hints)
    raise typer.Exit(NOT_DONE if follow and sweep.state != "done" else 0)


def _report(report: SweepReport, width: int) -> Group:
    sweep, now = report.sweep, report.now
    left = time_left(sweep, now)
    selection = [f"{name} {_words(value)}" for name, value in sweep.selection.items()]
    return detail_view(
        f"Sweep {sweep.id}: {sweep.act}",
        {
            "state": _state(report),
            "progress": [sweep_bar(sweep), describe_progress(sweep, report.jobs)],
            "time left": None if left is None else _about(left),
            "selection": ", ".join(selection) or None,
            "rate": "no limit" if sweep.rate is None else f"{sweep.rate:g}/s",
            "canary": _canary(report) if sweep.canary else None,
            "by": sweep.actor,
            "because": sweep.because,
            "started": both(sweep.created_at, now),
            "ended": both(sweep.ended_at, now) if sweep.ended_at else None,
        },
        *_outcomes(report, width),
        *_next_commands(sweep),
    )


def _outcomes(report: SweepReport, width: int) -> list[RenderableType]:
    sweep, outcomes = report.sweep, report.outcomes
    if not outcomes:
        return []
    is_cut = sweep.total > len(outcomes)
    note = ["", dim(showing(len(outcomes), sweep.total))] if is_cut else []
    return ["", responsive_table(_outcome_columns(report.now), outcomes, width), *note]


def _outcome_columns(now: datetime) -> list[Column[SweepOutcome]]:
    def name(row: SweepOutcome) -> str:
        is_left = row.outcome == "waiting"
        return row.label or ("not started" if is_left else state_name(row.outcome))

    return [
        Column("dead letter", lambda row: str(row.letter_id or "–"), is_number=True),
        Column("outcome", name),
        Column("job", lambda row: str(row.job_id or "–"), is_number=True),
        Column("time", lambda row: ago(row.at, now)),
        Column("error", lambda row: row.note or "", min_width=8),
    ]


def _next_commands(sweep: Sweep) -> list[RenderableType]:
    if sweep.state not in ("paused", "halted"):
        return []
    resume = f'redrive sweeps resume {sweep.id} --detach --because "..."'
    cancel = f'redrive sweeps cancel {sweep.id} --because "..."'
    is_halted = sweep.state == "halted"  # Resuming it skips the canary, so it is not the first.
    return ["", suggestion(cancel, resume) if is_halted else suggestion(resume, cancel)]


def _state(report: SweepReport) -> str:
    """Return the state with its reason.

    A replay is done when all its jobs are enqueued, not when they have ended.
    """
    sweep, running = report.sweep, report.jobs.get(IN_PROGRESS, 0)
    if sweep.act == "replay" and sweep.state == "done" and running:
        return f"done: all enqueued, {pluralise(running, 'job')} in progress"
    return sweep.state + (f": {sweep.reason}" if sweep.reason else "")


def _canary(report: SweepReport) -> Text:
    """Return the state of the canary, which fails at the first failed attempt."""
    canary = report.canary
    if canary is None:
        return Text(f"the first {report.sweep.canary:,}")
    if canary.verdict == "failed":
        retried = canary.failed - canary.dead
        counts = f"{canary.done:,} done, {canary.dead:,} dead, {retried:,} retry scheduled"
        error = f"; {canary.error}" if canary.error else ""
        return Text(f"failed: {canary.failed:,} of {canary.size:,} ({counts}){error}", style="red")
    all_done = f"{canary.size:,} of {canary.size:,}"
    if canary.verdict == "passed" and report.sweep.state == "halted":
        return Text(f"failed at first; by now {all_done} are done", style="yellow")
    if canary.verdict == "passed":
        return Text(f"passed: {all_done} done", style="green")
    return Text(f"running: {canary.done:,} of {canary.size:,} done, none failed")


def _about(left: timedelta) -> str:
    return f"about {format_duration(round(left.total_seconds()))}"


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@app.command()
def pause(*, sweep_id: SweepId, because: Because, options: WriteOptions) -> None:
    """Pause a sweep.

    No further dead letter is processed until the sweep is resumed.

    Examples:
        redrive sweeps pause 7 --because "CRM is slow"

    Exit codes:
        0: paused
        1: not running
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        _show_state(ops.sweeps.pause(sweep_id, because=because), options.as_json)


@app.command()
def cancel(*, sweep_id: SweepId, because: Because, options: WriteOptions) -> None:
    """Cancel the rest of a sweep.

    Dead letters that are processed already stay as they are.

    Examples:
        redrive sweeps cancel 7 --because "wrong selection"

    Exit codes:
        0: cancelled
        1: already ended
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        _show_state(ops.sweeps.cancel(sweep_id, because=because), options.as_json)


@app.command()
def resume(
    *,
    sweep_id: SweepId,
    because: Because,
    detach: Detach = False,
    yes: Yes = False,
    max_count: Max = None,
    options: WriteOptions,
) -> None:
    """Resume a sweep.

    Resumes a sweep that was paused, halted by its canary, or left by a killed process. It runs in
    this process. With --detach workers process it.

    After a failed canary, the rest follows without another canary, so the command asks for a
    confirmation. To run a canary again, cancel the sweep and start a new one with --canary.

    Examples:
        redrive sweeps resume 7 --because "CRM is back"
        redrive sweeps resume 7 --detach --because "CRM is back"
        redrive sweeps resume 7 --yes --max 50 --because "only that order was bad"

    Exit codes:
        0: done; with --detach, running
        1: already ended, stopped again, or not confirmed
        2: invalid option, or no interactive shell to confirm
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    with open_operator(options) as ops:
        accepted = confirm_without_canary(ops, sweep_id, Confirmation(yes, max_count))
        sweep = ops.sweeps.resume(sweep_id, because=because, accept_failed_canary=accepted)
        is_interrupted = False
        runs_here = not detach and sweep.act in PAST_TENSES
        if runs_here:
            applied, is_interrupted = run_sweep(ops, sweep, quiet=options.as_json)
            sweep = applied.sweep
        report = ops.sweeps.get(sweep.id, limit=1) if runs_here else None
        _show_state(sweep, options.as_json, None if report is None else report.jobs)
        is_stopped = runs_here and sweep.state != "done"
        raise typer.Exit(INTERRUPTED if is_interrupted else NOT_DONE if is_stopped else 0)


def confirm_without_canary(ops: Operator, sweep_id: int, confirmation: Confirmation, /) -> bool:
    """Ask before the rest of a sweep follows a failed canary. False: no canary has failed."""
    report = ops.sweeps.get(sweep_id, limit=1)
    if report is None or not report.sweep.halted_by_canary:
        return False
    sweep = report.sweep
    if sweep.act in PAST_TENSES:
        group, name, verb, noun = "sweeps", "sweep", "replay", "dead letter"
    else:
        group, name, verb, noun = "backfill", sweep.act, "start", "partition"
    rest = f"the other {pluralise(sweep.left, noun)} without another canary"
    complain(
        f"{name} {sweep.id}: {sweep.reason}; resuming {verb}s {rest}",
        f'redrive {group} cancel {sweep.id} --because "..."',
        f"then start a new {sweep.act} with --canary",
    )
    confirmation.require(_Rest(verb, sweep.left), ledger=ops.url)
    return True


@dataclass(frozen=True, slots=True)
class _Rest:
    """The items of a sweep that are not processed yet, to confirm."""

    act: str
    count: int


def _show_state(sweep: Sweep, as_json: bool, jobs: Mapping[str, int] | None = None) -> None:
    text = f"Sweep {sweep.id} is {sweep.state}: {describe_progress(sweep, jobs)}"
    print_result(sweep, as_json, lambda _sweep: text)
    if jobs and set(jobs) != {"done"} and not as_json:
        show(suggestion(f"redrive sweeps show {sweep.id}"))
