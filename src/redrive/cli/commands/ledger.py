"""`redrive ledger` and `redrive erase`: tables, counts and leases, and the data of one user."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.ledger import STATES, Kind, LedgerStatus, Seen
from ...ops.ledger import migrate as migrate_ledger
from ...ops.render import ago, describe_probe, document, utc
from ...ops.user_data import Erasure
from ..apply.confirm import Confirmation
from ..command import CommandGroup
from ..errors import NOT_DONE, exit_on_error
from ..options import (
    AppArgument,
    Because,
    ReadOptions,
    WriteOptions,
    choose_target,
    open_operator,
    option,
)
from ..render import (
    Column,
    console,
    count_or_dash,
    dim,
    fields,
    print_json,
    print_result,
    responsive_table,
    section,
    show,
    state_name,
)
from ..render.table import natural_width

app = CommandGroup(help="Migrate and inspect the ledger.")

MAX_WORKERS = 20
MAX_BUSY_JOBS = 5
MIN_NAME_COLUMNS = 20
"""Width of a job type below which the states are printed in words instead of columns."""


@app.command()
def migrate(*, app: AppArgument = None, options: ReadOptions) -> None:
    """Create or upgrade the ledger's tables.

    Safe to repeat, and safe on several machines at the same time.

    Examples:
        redrive ledger migrate
        redrive ledger migrate --ledger postgresql://app@db/shop

    Exit codes:
        0: the tables have this version's schema
        2: invalid option
        3: ledger not reachable, newer than this version, or of another program
    """
    target = choose_target(app, options.target)
    with exit_on_error():
        migrated = migrate_ledger(target)
    before, after = migrated.before, migrated.after
    if options.as_json:
        print_json(document(migrated) | {"changed": migrated.changed})
    elif not migrated.changed:
        show(f"Nothing to do: {migrated.url} has revision {after} already.")
    elif before is None:
        show(f"Made the ledger {migrated.url}, revision {after}.")
    else:
        show(f"Brought {migrated.url} from revision {before} to {after}.")


@app.command()
def status(*, app: AppArgument = None, options: ReadOptions) -> None:
    """Show schema, job counts and workers.

    For each job type: jobs by state, and how long the oldest is due.

    Examples:
        redrive ledger status
        redrive ledger status --json

    Exit codes:
        0: shown
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    target = choose_target(app, options.target)
    with open_operator(ReadOptions(target)) as ops:
        report = ops.status()
    print_result(report, options.as_json, lambda report: _status(report, console().width))


def _status(report: LedgerStatus, width: int) -> Group:
    parts: list[RenderableType] = [dim(f"{report.url}, revision {report.schema}")]
    if report.kinds:
        kinds = _kinds(report.kinds, report.now, width - 2)
        parts += [Text(report.sentence), *section("Jobs by type", kinds)]
        probes = {kind: describe_probe(at, report.now) for kind, at in report.probe_at.items()}
        paused = [
            Text(f"{kind}: {reason}{probes.get(kind, '')}", "yellow")
            for kind, reason in report.parked.items()
        ]
        parts += section("Paused after an outage", Group(*paused)) if paused else []
    else:
        parts.append("No jobs.")
    return Group(*parts, *_workers(report.workers, report.now, width - 2))


def _kinds(kinds: Sequence[Kind], now: datetime, width: int) -> RenderableType:
    """Return jobs by type and state: as a table, or in words if there are too many states."""
    states = [state for state in STATES if any(kind.states[state] for kind in kinds)]
    columns = _kind_columns(states, now)
    narrow: Column[Kind] = Column("x" * MIN_NAME_COLUMNS, lambda _kind: "")
    if natural_width([narrow, *columns[1:]], kinds) <= width:
        return responsive_table(columns, kinds, width)
    table = fields({})
    for kind in kinds:
        counts = [
            f"{kind.states[state]:,} {_column_name(state)}"
            for state in states
            if kind.states[state]
        ]
        is_due = kind.oldest_due is not None or kind.next_due is not None
        due = [_oldest_due(kind, now, "oldest due ")] if is_due else []
        table.add_row(Text(kind.name, overflow="fold"), ", ".join([*counts, *due]))
    table.columns[0].max_width, table.columns[0].no_wrap = max(16, width * 2 // 5), False
    return table


def _kind_columns(states: Sequence[str], now: datetime) -> list[Column[Kind]]:
    def count_of(state: str) -> Column[Kind]:
        return Column(
            _column_name(state), lambda kind: count_or_dash(kind.states[state]), is_number=True
        )

    return [
        Column("job type", lambda kind: kind.name, min_width=MIN_NAME_COLUMNS),
        Column("submitted", lambda kind: f"{kind.submitted:,}", is_number=True),
        *map(count_of, states),
        Column("oldest due", lambda kind: _oldest_due(kind, now)),
    ]


def _column_name(state: str) -> str:
    """Return the name of a count. The count of discarded jobs includes replaced ones."""
    return "discarded or replayed" if state == "discarded" else state_name(state)


def _oldest_due(kind: Kind, now: datetime, label: str = "") -> str:
    if kind.oldest_due is None and kind.next_due is not None:
        return f"next {ago(kind.next_due, now)}"
    return label + ago(kind.oldest_due, now)


def _workers(workers: Sequence[Seen], now: datetime, width: int) -> list[RenderableType]:
    if not workers:
        return ["", dim("No workers.")]
    table = responsive_table(_worker_columns(now), workers[:MAX_WORKERS], width)
    hidden = len(workers) - MAX_WORKERS
    more = [dim(f"  and {hidden:,} more")] if hidden > 0 else []
    return [*section("Workers, latest heartbeat first", table), *more]


def _worker_columns(now: datetime) -> list[Column[Seen]]:
    def heartbeat(worker: Seen) -> str:
        if worker.ended_at is None:
            return ago(worker.seen_at, now)
        state = "lost" if worker.seen_at < worker.ended_at else "stopped"  # as in `workers list`
        return f"{ago(worker.seen_at, now)}, {state}"

    return [
        Column("worker", lambda worker: worker.name, min_width=16),
        Column("host", lambda worker: worker.host or None, min_width=8, drop_order=1),
        Column("pid", lambda worker: str(worker.pid or "–"), is_number=True, drop_order=2),
        Column("last heartbeat", heartbeat),
        Column("UTC", lambda worker: utc(worker.seen_at), drop_order=3),
    ]


@app.command()
def reap(*, options: ReadOptions) -> None:
    """Recover expired leases.

    Any worker does the same. Lost attempts are recorded. Their jobs are queued again, or are dead
    letters.

    Examples:
        redrive ledger reap

    Exit codes:
        0: done, also when there were none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        jobs = ops.health.reap()
    text = f"Recovered {pluralise(len(jobs), 'lease')}." if jobs else "No expired leases."
    print_result({"jobs": jobs}, options.as_json, lambda _jobs: text)


@app.command()
def recount(*, because: Because, options: WriteOptions) -> None:
    """Correct the counts from the rows.

    For use after rows were changed or removed by hand. Counts and rows are written together, so
    find the cause first. The audit log records the correction.

    Examples:
        redrive ledger recount --because "restored from backup"

    Exit codes:
        0: the counts match the rows
        2: invalid option, or no reason
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        added = ops.health.recount(because=because)
    if options.as_json:
        print_json({"added": added})
    elif not added:
        show("No change: the counts match the rows.")
    else:
        for kind, changes in added.items():
            counts = ", ".join(f"{name} {count:+,}" for name, count in changes.items())
            show(f"{kind}: {counts}")


def erase(
    *,
    user: Annotated[str, option("--user", "NAME", "Name of the user")],
    because: Because,
    confirmation: Confirmation,
    options: WriteOptions,
) -> None:
    """Erase the data of one user.

    Erases payloads, results, errors and headers of ended jobs, dead letters, events and idempotency
    records. They are selected by the user's name in the key (domain:USER:...) or by the correlation
    ID `user_id`. Pending dead letters are discarded. A pseudonym replaces the name in partitions,
    errors, reasons, sweeps and the audit log.

    Queued and running jobs stay and are listed, so repeat the command later. Places that are not
    covered, such as backups, are printed. The command needs confirmation: type the number of rows
    at the prompt, or pass --yes --max N. The audit log records the erasure without the name.

    Examples:
        redrive erase --user ann --dry-run --because "request 17"
        redrive erase --user ann --yes --max 500 --because "request 17"

    Exit codes:
        0: no data of the user is left
        1: some data is left, or not confirmed
        2: invalid option, or no reason
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        plan = ops.user_data.plan_erasure(user)
        not_covered = plan.stays
        if not options.as_json:
            _show_erasure(plan)
        is_erased = bool(plan.count) and not confirmation.dry_run
        if is_erased:
            confirmation.require(plan)
            not_covered = ops.user_data.erase(plan, because=because)
    if options.as_json:
        summary = {name: value for name, value in document(plan).items() if name != "found"}
        print_json({"plan": summary, "erased": is_erased, "stays": list(not_covered)})
    elif is_erased:
        show(f"Erased: {pluralise(plan.count, 'row')}")
        show("Not covered: " + "; ".join(not_covered))
    raise typer.Exit(NOT_DONE if plan.busy or plan.held else 0)


def _show_erasure(plan: Erasure) -> None:
    counts = {
        "job": plan.jobs,
        "dead letter": plan.letters,
        "event": plan.events,
        "idempotency record": plan.keys,
        "mention": plan.mentions,
    }
    rows = ", ".join(pluralise(count, name) for name, count in counts.items() if count)
    show(f"To erase: {rows}" if rows else "Nothing to erase.")
    if plan.busy:
        more = " …" if len(plan.busy) > MAX_BUSY_JOBS else ""
        jobs = ", ".join(map(str, plan.busy[:MAX_BUSY_JOBS])) + more
        repeat = "Repeat the command after they have ended."
        show(f"Kept: queued or running jobs {jobs}. {repeat}", style="yellow")
    if plan.held:
        records = pluralise(plan.held, "idempotency record")
        show(f"Kept: {records} of running operations.", style="yellow")
