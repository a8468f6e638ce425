"""`redrive events`: what was received, who has handled it, and handling it once more."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.dead_letters.model import DeadLetterFilter
from ...ops.defaults import MAX_REPLAYS
from ...ops.events import EventReport
from ...ops.render import document
from ..apply.dead_letters import Canary, Detach, Dry, How, MaxReplays, Most, Rate, Yes, act
from ..choices import EVENT, state_option
from ..command import Commands
from ..options import NOT_DONE, Actor, AsJson, Because, Error, Reason, Since, Where, operator, option, since_of
from ..render.details import indented, payload, showing, state_name
from ..render.moments import ago, both
from ..render.output import BAD_INPUT, complain, console, heading, pairs, print_json, show
from ..render.table import Column, fitted

app = Commands(help="List, show and replay events.")
Source = Annotated[str | None, option("--source", "NAME", "Only this source")]
Type = Annotated[str | None, option("--type", "NAME", "Only this event type")]
Handlers = Annotated[str | None, option("--handlers", "A,B", "Handlers, with --event-id (default: all that had the event)")]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of events")]


@app.command("list")
def list_(source: Source = None, type_: Type = None, limit: Limit = 50, where: Where = None, as_json: AsJson = False) -> None:
    """List received events.

    Newest first.

    Examples:
        redrive events list
        redrive events list --source webhook --type order.paid

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        found = ops.events.find(source=source, of_type=type_, limit=limit)
        if as_json:
            print_json(document(found))
            return
        out, now = console(), ops.now()
        columns = [
            Column("received"), Column("type", least=12), Column("id", least=12), Column("source", least=10, leave=1),
            Column("handlers", number=True, leave=2),
        ]  # fmt: skip
        rows = [
            {
                "received": ago(one.received_at, now), "type": one.type, "id": one.id, "source": one.source,
                "handlers": str(one.handlers),
            }
            for one in found
        ]  # fmt: skip
        made = fitted(columns, rows, out.width) if rows else Text("No events.")
        more = [Text(f"\n{showing(len(found))}", style="dim")] if len(found) == limit else []
        show(out, Group(made, *more))


@app.command("show")
def show_(
    event_id: Annotated[str, typer.Argument(metavar="ID", help="ID of the event")],
    source: Source = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Show one event.

    Shows payload, headers and the outcome of each handler. Secrets are hidden.

    Examples:
        redrive events show evt-42
        redrive events show evt-42 --source webhook

    Exit codes:
        0: shown
        1: no event or several events with this ID
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        report = ops.events.get(event_id, source=source)
        if report is None:
            complain(f"event {event_id!r}: not found; `redrive events list` lists events")
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(report))
            return
        out = console()
        show(out, _report(report, out.width))


def _report(report: EventReport, width: int) -> Group:
    event, now = report.event, report.now
    first = pairs()
    first.add_row("type", event.type)
    first.add_row("source", f"{event.source} {event.source_id or ''}".rstrip())
    first.add_row("happened", both(event.at, now))
    first.add_row("received", both(event.received_at, now))
    for name, value in {**report.headers, **report.ids}.items():
        first.add_row(name, str(value))
    shown: list[RenderableType] = [heading(f"Event {event.id}"), indented(first)]
    shown += [*payload(f"Payload, {pluralise(report.payload_bytes, 'byte')}", report.payload, report.payload_bytes), ""]
    columns = [
        Column("handler", least=8), Column("state"), Column("attempts", number=True), Column("job", number=True),
        Column("error", least=12, cut=True),
    ]  # fmt: skip
    rows = [
        {
            "handler": one.handler, "state": state_name(one.state), "attempts": str(one.attempts), "job": str(one.job_id),
            "error": (one.error or "").partition("\n")[0],
        }
        for one in report.handlers
    ]  # fmt: skip
    shown.append(fitted(columns, rows, width) if rows else Text("No handler had this event.", style="yellow"))
    return Group(*shown)


@app.command()
def replay(
    because: Because,
    event_id: Annotated[str | None, option("--event-id", "ID", "ID of one event")] = None,
    handlers: Handlers = None,
    status: Annotated[
        Literal["failed"],
        state_option("--status", EVENT, "Outcome to select, without --event-id", show_default=True),
    ] = "failed",
    source: Source = None, error: Error = None, reason: Reason = None, since: Since = None, limit: Limit = 100,
    yes: Yes = False, most: Most = None, dry_run: Dry = False, rate: Rate = None, canary: Canary = 0,
    max_replays: MaxReplays = MAX_REPLAYS, detach: Detach = False, actor: Actor = None, where: Where = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Replay events to their handlers.

    With --event-id one event is replayed to all its handlers, or to those in --handlers. Without
    --event-id, all dead letters of handlers are replayed. Selection and confirmation then work as
    in `redrive dead replay`. Deduplication keys stay the same.

    --handlers takes handlers of the event's type. They must be registered in the app (--ledger
    module:app) or have jobs for recent events of this type. Otherwise nothing is replayed.

    Examples:
        redrive events replay --event-id evt-42 --because "handler fixed"
        redrive events replay --event-id evt-42 --handlers billing --because "handler fixed"
        redrive events replay --source webhook --since 12h --because "INC-42"

    Exit codes:
        0: all replayed
        1: some or none replayed; the skipped ones are listed with the reason
        2: invalid option, or unknown handler
        3: ledger not reachable, or its schema is from another version
        130: interrupted; workers continue the sweep
    """
    with operator(where, actor, app_first=handlers is not None) as ops:
        if event_id is None:
            if handlers is not None:
                complain(
                    "--handlers: needs --event-id",
                    'for dead letters of one handler: `redrive dead replay --kind NAME --because "..."`',
                )
                raise typer.Exit(BAD_INPUT)
            plan = ops.dead_letters.replay(
                DeadLetterFilter(source=source or "*", error=error, reason=reason, since=since_of(since), limit=limit)
            )
            how = How(because, named=False, yes=yes, most=most, dry_run=dry_run, as_json=as_json, detach=detach)
            act(ops, plan, how, rate=rate, canary=canary, max_replays=max_replays or None)
            return
        names = [name.strip() for name in handlers.split(",") if name.strip()] if handlers else []
        if handlers is not None and not names:  # no name at all would mean every handler
            complain(f"--handlers {handlers!r}: no name; use --handlers A,B, or leave it out for all handlers that had the event")
            raise typer.Exit(BAD_INPUT)
        said = ops.events.replay(event_id, source=source, handlers=names, because=because)
        if as_json:
            print_json(said)
        elif not said:
            complain(f"event {event_id!r}: no handler had it; choose one with --handlers")
        else:
            for name, what in said.items():
                show(console(), Text(f"{name}: {what}", style="yellow" if what.startswith("skipped") else ""))
        raise typer.Exit(NOT_DONE if not said or any(what.startswith("skipped") for what in said.values()) else 0)
