"""`redrive work`: a worker of an app, until it is told to stop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from ..errors import LedgerError
from ..ops.document import document
from ..ops.imported import Unreadable
from ..ops.work import Shift, Terms, Work, hired
from .options import NO_LEDGER, option
from .output import BAD_INPUT, COMMANDS, complain, console

EVERY = 10.0
"""Seconds between lines where nobody watches."""
PLACES = 4


def work(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP", show_default=False,
            help="The App in your code; the directory you are in is searched. Default: $REDRIVE_APP, else as redrive.toml says.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, metavar="N", help="Plain functions at once. Default: 8.", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this command; may be given again.", show_default=False),
    ] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            "--drain", min=0, metavar="SECONDS", show_default=False,
            help="How long what runs may take to end, when told to stop. Default: 30.",
        ),
    ] = None,
    name: Annotated[str | None, option("--name", "NAME", "As others see it. Default: host and process.")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", min=0, max=65535, metavar="PORT", show_default=False,
            help="Serve /metrics for Prometheus and /health here. Default: not at all.",
        ),
    ] = None,
    metrics_host: Annotated[
        str | None, option("--metrics-host", "ADDRESS", "At this address. Default: 127.0.0.1.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:  # fmt: skip
    """Work: take jobs of the app's commands from its ledger and run them, until SIGTERM or Ctrl+C.

    The first signal drains: nothing more is taken, what runs may end; what has not ended in time goes back, uncharged. The second
    one stops at once. On a terminal a line shows how it goes; elsewhere there is one every ten seconds, if something happened.
    What no option says is as the environment or redrive.toml has it.

    Exit status: 0, drained; 2, a wrong option, no such app, or nothing is registered; 3, the ledger cannot be reached or has
    another schema; 130 or 143, stopped at once by a second SIGINT or SIGTERM.
    """
    try:
        hand = hired(app, Terms(threads, only, drain, name, metrics_port, metrics_host))
    except LedgerError as problem:
        complain(str(problem), *getattr(problem, "__notes__", ()))
        raise typer.Exit(NO_LEDGER) from None
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    out = console()
    with _json(hand) if as_json else _live(hand, out) if out.is_terminal else _lines(hand):
        number = hand.run()
    if number is not None:
        raise typer.Exit(128 + number)


@contextmanager
def _live(hand: Work, out: Console) -> Iterator[None]:
    """A line that changes, under what the commands print."""
    for said in opening(hand.shift):
        out.print(Text(said))
    rate = Rate()

    def picture() -> RenderableType:
        return Text(_clean(standing(hand, rate)), overflow="ellipsis", no_wrap=True)

    with Live(get_renderable=picture, console=out, refresh_per_second=4) as live:
        yield
        live.refresh()


@contextmanager
def _lines(hand: Work) -> Iterator[None]:
    for said in opening(hand.shift):
        print(_clean(said), flush=True)
    rate = Rate()
    with _ticking(hand, lambda: print(_clean(standing(hand, rate)), flush=True)):
        yield
    print(_clean(standing(hand, rate)), flush=True)


@contextmanager
def _json(hand: Work) -> Iterator[None]:
    def line(event: str, facts: Any) -> None:
        print(json.dumps({"event": event, **document(facts)}, ensure_ascii=True), flush=True)

    line("started", hand.shift)
    with _ticking(hand, lambda: line("status", _facts(hand))):
        yield
    line("ended", _facts(hand))


@contextmanager
def _ticking(hand: Work, tick: Any) -> Iterator[None]:
    """Now and then, where something has happened since."""
    over = threading.Event()

    def ticks() -> None:
        before = None
        while not over.wait(EVERY):
            facts = _facts(hand)
            if facts != before:
                tick()
            before = facts

    thread = threading.Thread(target=ticks, name="redrive-status", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1)


def _facts(hand: Work) -> dict[str, Any]:
    return hand.status._asdict()


def opening(shift: Shift) -> list[str]:
    """What it works on, for a person."""
    many = len(shift.kinds)
    named = ", ".join(shift.kinds[:PLACES]) + (f" and {many - PLACES} more" if many > PLACES else "")
    said = [
        f"{shift.name} works on {shift.url}: {many} {'command' if many == 1 else 'commands'}, {named}; {shift.threads} threads."
    ]
    if shift.metrics is not None:
        said.append(f"Metrics at {shift.metrics}.")
    said += [f"{kind} fires by `{line}`." for kind, line in shift.scheduled.items()]
    said += [
        f"Not registered here, and kept for whoever has it: {kind}, {count:,} waiting." for kind, count in shift.unknown.items()
    ]
    return said


class Rate:
    """How many end in a second, since the last time it was asked."""

    def __init__(self) -> None:
        self._before = (time.monotonic(), 0)
        self._last = 0.0

    def of(self, done: int) -> float:
        """Over at least a second."""
        now = time.monotonic()
        began, before = self._before
        if now - began >= 1:
            self._last = (done - before) / (now - began)
            self._before = (now, done)
        return self._last


def standing(hand: Work, rate: Rate) -> str:
    """How it goes, in one line."""
    status = hand.status
    parts = [
        f"{status.state}: {status.running:,} running",
        f"{status.done:,} done" + (f" ({speed:,.3g}/s)" if (speed := rate.of(status.done)) else ""),
        f"{status.again:,} to be tried again",
        f"{status.dead:,} dead",
    ]
    if status.late:
        parts.append(f"{status.late:,} too late")
    if status.overdue:
        parts.append(f"{status.overdue:,} overdue")
    said = ", ".join(parts)
    if status.parked:
        said += "; parked: " + ", ".join(f"{kind} ({why})" for kind, why in status.parked.items())
    return said if status.trouble is None else f"{said}; the ledger: {status.trouble}"


def _clean(text: str) -> str:
    return COMMANDS.sub("", text.replace("\n", " "))
