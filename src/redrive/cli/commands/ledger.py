"""`redrive ledger`: the tables, and how the ledger stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...core.text import pluralise
from ...errors import LedgerError
from ...ops.ledger import STATES, Kind, Seen, Status
from ...ops.ledger import migrate as brought_up
from ...ops.render import document
from ...ops.user_code import Unreadable
from ..command import Commands
from ..options import NO_LEDGER, Actor, AsJson, Because, Named, Where, operator, where_of
from ..render.details import state_name
from ..render.moments import ago, utc
from ..render.output import BAD_INPUT, complain, complain_of, console, heading, pairs, print_json, show
from ..render.table import Column, fitted, natural

app = Commands(help="Migrate and inspect the ledger.")


@app.command()
def migrate(app: Named = None, where: Where = None, as_json: AsJson = False) -> None:
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
    try:
        migrated = brought_up(where_of(app, where))
    except LedgerError as problem:
        complain_of(problem)
        raise typer.Exit(NO_LEDGER) from None
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        print_json(document(migrated) | {"changed": migrated.changed})
    elif not migrated.changed:
        show(console(), Text(f"Nothing to do: {migrated.url} has revision {migrated.after} already."))
    elif migrated.before is None:
        show(console(), Text(f"Made the ledger {migrated.url}, revision {migrated.after}."))
    else:
        show(console(), Text(f"Brought {migrated.url} from revision {migrated.before} to {migrated.after}."))


@app.command()
def status(app: Named = None, where: Where = None, as_json: AsJson = False) -> None:
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
    with operator(where_of(app, where)) as ops:
        found = ops.status()
    if as_json:
        print_json(document(found))
        return
    out = console()
    show(out, _status(found, out.width))


def _status(found: Status, width: int) -> Group:
    shown: list[RenderableType] = [Text(f"{found.url}, revision {found.schema}", style="dim")]
    if not found.kinds:
        return Group(*shown, Text("No jobs."), *_workers(found.workers, found.now, width))
    shown += [Text(found.sentence), "", heading("Jobs by type"), _in(_kinds(found.kinds, found.now, width - 2))]
    if found.parked:
        shown += ["", heading("Paused after an outage")]
        shown += [Text(f"  {kind}: {why}", style="yellow") for kind, why in found.parked.items()]
    return Group(*shown, *_workers(found.workers, found.now, width))


def _kinds(kinds: Sequence[Kind], now: datetime, width: int) -> Table:
    used = [state for state in STATES if any(kind.states[state] for kind in kinds)]
    columns = [
        Column("job type", least=20),
        Column("submitted", number=True),
        *(Column(state_name(state), number=True) for state in used),
        Column("oldest due"),
    ]
    rows = [
        {
            "job type": kind.name,
            "submitted": f"{kind.submitted:,}",
            "oldest due": _oldest(kind, now),
            **{state_name(state): f"{kind.states[state]:,}" if kind.states[state] else "–" for state in used},
        }
        for kind in kinds
    ]
    if natural([Column("x" * 20), *columns[1:]], [{"x" * 20: "", **row} for row in rows]) <= width:
        return fitted(columns, rows, width)
    made = pairs()  # too many states for one line
    for kind in kinds:
        counted = [f"{kind.states[state]:,} {state_name(state)}" for state in used if kind.states[state]]
        waits = [] if kind.oldest_due is None and kind.next_due is None else [_oldest(kind, now, "oldest due ")]
        made.add_row(Text(kind.name, overflow="fold"), ", ".join([*counted, *waits]))
    made.columns[0].max_width, made.columns[0].no_wrap = max(16, width * 2 // 5), False
    return made


def _oldest(kind: Kind, now: datetime, name: str = "") -> str:
    if kind.oldest_due is None and kind.next_due is not None:
        return f"next {ago(kind.next_due, now)}"
    return name + ago(kind.oldest_due, now)


def _workers(workers: Sequence[Seen], now: datetime, width: int) -> list[RenderableType]:
    if not workers:
        return ["", Text("No workers.", style="dim")]
    rows = [
        {
            "worker": worker.name,
            "host": worker.host or "–",
            "pid": str(worker.pid or "–"),
            "last heartbeat": ago(worker.seen_at, now) + (", stopped" if worker.ended_at is not None else ""),
            "UTC": utc(worker.seen_at),
        }
        for worker in workers[:20]
    ]
    columns = [
        Column("worker", least=16),
        Column("host", least=8, leave=1),
        Column("pid", number=True, leave=2),
        Column("last heartbeat"),
        Column("UTC", leave=3),
    ]
    more = [Text(f"  and {len(workers) - 20:,} more", style="dim")] if len(workers) > 20 else []
    return ["", heading("Workers, latest heartbeat first"), _in(fitted(columns, rows, width - 2)), *more]


def _in(body: RenderableType) -> Padding:
    return Padding(body, (0, 0, 0, 2), expand=False)


@app.command()
def reap(where: Where = None, as_json: AsJson = False) -> None:
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
    with operator(where) as ops:
        jobs = ops.health.reap()
    if as_json:
        print_json({"jobs": jobs})
    else:
        show(
            console(),
            Text(f"Recovered {pluralise(len(jobs), 'lease')}." if jobs else "No expired leases."),
        )


@app.command()
def recount(because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
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
    with operator(where, actor) as ops:
        added = ops.health.recount(because=because)
    if as_json:
        print_json({"added": added})
    elif not added:
        show(console(), Text("No change: the counts match the rows."))
    else:
        for kind, change in added.items():
            said = ", ".join(f"{name} {many:+,}" for name, many in change.items())
            show(console(), Text(f"{kind}: {said}"))
