"""`redrive ledger`: the tables, and how the ledger stands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..errors import LedgerError
from ..ops.document import document
from ..ops.imported import Unreadable
from ..ops.ledger import STATES, Kind, Seen, Status
from ..ops.ledger import migrate as brought_up
from .fit import Column, fitted, natural
from .moments import ago, utc
from .options import NO_LEDGER, Actor, AsJson, Because, Named, Where, operator, where_of
from .output import BAD_INPUT, complain, console, heading, pairs, print_json, show

app = typer.Typer(no_args_is_help=True, help="The ledger: make or bring up its tables, see how it stands.")


@app.command()
def migrate(app: Named = None, where: Where = None, as_json: AsJson = False) -> None:
    """Make the ledger's tables, or bring them up to this version. Safe to run again, and from several machines at once.

    Exit status: 0, the tables are as this version needs them; 2, a wrong option; 3, the ledger cannot be reached, is newer than
    this version, or is another program's.
    """
    try:
        migrated = brought_up(where_of(app, where))
    except LedgerError as problem:
        complain(str(problem), *getattr(problem, "__notes__", ()))
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
    """Show the schema, how many jobs there are by kind and state, how long the oldest has waited, and the workers.

    Exit status: 0, shown; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
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
        return Group(*shown, Text("Nothing was submitted yet."), *_workers(found.workers, found.now, width))
    shown += [Text(found.sentence), "", heading("Jobs by kind"), _in(_kinds(found.kinds, found.now, width - 2))]
    if found.parked:
        shown += ["", heading("Parked")]
        shown += [Text(f"  {kind}: {why}", style="yellow") for kind, why in found.parked.items()]
    return Group(*shown, *_workers(found.workers, found.now, width))


def _kinds(kinds: Sequence[Kind], now: datetime, width: int) -> Table:
    used = [state for state in STATES if any(kind.states[state] for kind in kinds)]
    columns = [
        Column("kind", least=20),
        Column("submitted", number=True),
        *(Column(state, number=True) for state in used),
        Column("oldest due"),
    ]
    rows = [
        {
            "kind": kind.name,
            "submitted": f"{kind.submitted:,}",
            "oldest due": _oldest(kind, now),
            **{state: f"{kind.states[state]:,}" if kind.states[state] else "–" for state in used},
        }
        for kind in kinds
    ]
    if natural([Column("kind" * 5), *columns[1:]], [{"kind" * 5: "", **row} for row in rows]) <= width:
        return fitted(columns, rows, width)
    made = pairs()  # too many states for one line
    for kind in kinds:
        counted = [f"{kind.states[state]:,} {state}" for state in used if kind.states[state]]
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
        return ["", Text("No worker was seen yet.", style="dim")]
    rows = [
        {
            "worker": worker.name,
            "host": worker.host or "–",
            "pid": str(worker.pid or "–"),
            "last seen": ago(worker.seen_at, now) + (", ended" if worker.ended_at is not None else ""),
            "UTC": utc(worker.seen_at),
        }
        for worker in workers[:20]
    ]
    columns = [
        Column("worker", least=16),
        Column("host", least=8, leave=1),
        Column("pid", number=True, leave=2),
        Column("last seen"),
        Column("UTC", leave=3),
    ]
    more = [Text(f"  and {len(workers) - 20:,} more", style="dim")] if len(workers) > 20 else []
    return ["", heading("Workers, the last seen first"), _in(fitted(columns, rows, width - 2)), *more]


def _in(body: RenderableType) -> Padding:
    return Padding(body, (0, 0, 0, 2), expand=False)


@app.command()
def reap(where: Where = None, as_json: AsJson = False) -> None:
    """Take back leases that ran out, as any worker does: lost attempts are recorded, and their jobs wait again or are dead.

    Exit status: 0, done, also where there were none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        jobs = ops.reap()
    if as_json:
        print_json({"jobs": jobs})
    else:
        show(
            console(),
            Text(f"Took back {len(jobs):,} {'lease' if len(jobs) == 1 else 'leases'}." if jobs else "No lease has run out."),
        )


@app.command()
def recount(because: Because, actor: Actor = None, where: Where = None, as_json: AsJson = False) -> None:
    """Set the counts right by the rows, after rows were changed or removed by hand. Recorded in the audit.

    Find out first why they were wrong: counts and rows are written together, and part only if somebody else wrote there.

    Exit status: 0, they agree now; 2, a wrong option, or no reason was given; 3, the ledger cannot be reached or has another
    schema.
    """
    with operator(where, actor) as ops:
        added = ops.recount(because=because)
    if as_json:
        print_json({"added": added})
    elif not added:
        show(console(), Text("Nothing to do: the counts agree with the rows."))
    else:
        for kind, change in added.items():
            said = ", ".join(f"{name} {many:+,}" for name, many in change.items())
            show(console(), Text(f"{kind}: {said}"))
