"""`redrive events`: list, show and replay received events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ...ops.context import MAX_REPLAYS
from ...ops.dead_letters.model import DeadLetterFilter
from ...ops.events import EventReport, HandlerJobView, ReceivedEvent
from ...ops.render import ago, both
from ..apply.confirm import ApplyOptions, Confirmation
from ..apply.dead_letters import Canary, Detach, MaxReplays, Rate, apply_plan
from ..command import CommandGroup
from ..errors import BAD_INPUT, NOT_DONE, complain, fail
from ..options import (
    EVENT_STATES,
    Because,
    Error,
    ReadOptions,
    Reason,
    Since,
    WriteOptions,
    limit_option,
    open_operator,
    option,
    state_option,
    time_of,
)
from ..render import (
    Column,
    console,
    detail_view,
    first_line,
    payload_section,
    print_json,
    print_result,
    print_rows,
    responsive_table,
    show,
    showing,
    state_name,
)
from ..unknown_names import unknown_source

app = CommandGroup(help="List, show and replay events.")

Source = Annotated[str | None, option("--source", "NAME", "Only this source")]
Limit = Annotated[int, limit_option("events")]


@app.command("list")
def list_(
    *,
    source: Source = None,
    type_: Annotated[str | None, option("--type", "NAME", "Only this event type")] = None,
    limit: Limit = 50,
    options: ReadOptions,
) -> None:
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
    with open_operator(options) as ops:
        events = ops.events.find(source=source, of_type=type_, limit=limit)
        columns = _event_columns(ops.now())
        unknown = None if events else unknown_source(ops, source)
    cut = showing(limit) if len(events) == limit else None
    empty = unknown or ("No event matches." if source or type_ else "No events.")
    print_rows(events, options.as_json, columns, empty=empty, below=[cut])


def _event_columns(now: datetime) -> list[Column[ReceivedEvent]]:
    return [
        Column("received", lambda event: ago(event.received_at, now)),
        Column("type", lambda event: event.type, min_width=12),
        Column("id", lambda event: event.id, min_width=12),
        Column("source", lambda event: event.source, min_width=10, drop_order=1),
        Column("handlers", lambda event: str(event.handlers), is_number=True, drop_order=2),
    ]


HANDLER_COLUMNS: list[Column[HandlerJobView]] = [
    Column("handler", lambda run: run.handler, min_width=8),
    Column("state", lambda run: state_name(run.state)),
    Column("attempts", lambda run: str(run.attempts), is_number=True),
    Column("job", lambda run: str(run.job_id), is_number=True),
    Column("error", lambda run: first_line(run.error) or "", min_width=12, truncate=True),
]


@app.command("show")
def show_(
    *,
    event_id: Annotated[str, typer.Argument(metavar="ID", help="ID of the event")],
    source: Source = None,
    options: ReadOptions,
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
    with open_operator(options) as ops:
        report = ops.events.get(event_id, source=source)
    if report is None:
        fail(NOT_DONE, f"event {event_id!r}: not found; `redrive events list` lists events")
    print_result(report, options.as_json, _report)


def _report(report: EventReport) -> Group:
    event, now = report.event, report.now
    handlers: RenderableType = Text("No handler received this event.", style="yellow")
    if report.handlers:
        handlers = responsive_table(HANDLER_COLUMNS, report.handlers, console().width)
    names = {**report.headers, **report.ids}
    return detail_view(
        f"Event {event.id}",
        {
            "type": event.type,
            "source": f"{event.source} {event.source_id or ''}".rstrip(),
            "happened": both(event.at, now),
            "received": both(event.received_at, now),
            **{name: str(value) for name, value in names.items()},
        },
        *payload_section(report.payload, report.payload_bytes),
        "",
        handlers,
    )


@app.command()
def replay(
    *,
    because: Because,
    event_id: Annotated[str | None, option("--event-id", "ID", "ID of one event")] = None,
    handlers: Annotated[
        str | None,
        option("--handlers", "A,B", "Handlers, with --event-id (default: all that had the event)"),
    ] = None,
    status: Annotated[
        Literal["failed"],
        state_option(
            "--status", EVENT_STATES, "Outcome to select, without --event-id", show_default=True
        ),
    ] = "failed",
    source: Source = None,
    error: Error = None,
    reason: Reason = None,
    since: Since = None,
    limit: Limit = 100,
    confirmation: Confirmation,
    rate: Rate = None,
    canary: Canary = 0,
    max_replays: MaxReplays = MAX_REPLAYS,
    detach: Detach = False,
    options: WriteOptions,
) -> None:
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
    with open_operator(options, app_first=handlers is not None) as ops:
        if event_id is not None:
            names = _handler_names(handlers)
            outcomes = ops.events.replay(event_id, source=source, handlers=names, because=because)
            _show_outcomes(event_id, outcomes, options.as_json)
        if handlers is not None:
            dead = (
                'for dead letters of one handler: `redrive dead replay --kind NAME --because "..."`'
            )
            fail(BAD_INPUT, "--handlers: needs --event-id", dead)
        which = DeadLetterFilter(
            source=source or "*", error=error, reason=reason, since=time_of(since), limit=limit
        )
        plan = ops.dead_letters.replay(which)
        apply = ApplyOptions(because, confirmation, options.as_json, detach)
        apply_plan(ops, plan, apply, rate=rate, canary=canary, max_replays=max_replays or None)


def _handler_names(text: str | None) -> list[str]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is not None and not names:  # An empty list would mean every handler.
        use = "use --handlers A,B, or leave it out for all handlers that had the event"
        fail(BAD_INPUT, f"--handlers {text!r}: no name; {use}")
    return names


def _show_outcomes(event_id: str, outcomes: dict[str, str], as_json: bool) -> NoReturn:
    skipped = [name for name, outcome in outcomes.items() if outcome.startswith("skipped")]
    if as_json:
        print_json(outcomes)
    elif not outcomes:
        complain(f"event {event_id!r}: no handler had it; choose one with --handlers")
    else:
        for name, outcome in outcomes.items():
            show(f"{name}: {outcome}", style="yellow" if name in skipped else "")
    raise typer.Exit(NOT_DONE if skipped or not outcomes else 0)
