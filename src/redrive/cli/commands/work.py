"""`redrive work`: a worker of an app, until it is told to stop."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from ...core.text import pluralise
from ...errors import LedgerError
from ...ops.render import document
from ...ops.target.imported import Unreadable
from ...ops.work import Shift, Status, Terms, Work, hired
from ..options import NO_LEDGER, option
from ..render.output import BAD_INPUT, COMMANDS, complain, complain_of, console

EVERY = 10.0
"""Seconds between lines where nobody watches."""
PLACES = 4
DEAD = frozenset(("giveup", "blocked"))
"""Kinds of records of a job that is not retried."""
REMOVED = "LedgerRemoved: "
"""How a problem begins that ends the worker: the error message at the end reports it once."""


def work(
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:APP", show_default=False,
            help="App in your code, found from the current directory (default: $REDRIVE_APP, redrive.toml)",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, metavar="N", show_default=False,
            help="Number of sync functions that run at the same time (default: 8)",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this command, handler or dataset (repeatable)", show_default=False),
    ] = None,
    drain: Annotated[
        float | None,
        typer.Option(
            "--drain", min=0, metavar="SECONDS", show_default=False,
            help="Seconds that running jobs have to finish after a stop signal (default: 30)",
        ),
    ] = None,
    name: Annotated[str | None, option("--name", "NAME", "Name of the worker (default: host and process ID)")] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port", min=0, max=65535, metavar="PORT", show_default=False,
            help="Port for /metrics and /health (default: none)",
        ),
    ] = None,
    metrics_host: Annotated[
        str | None, option("--metrics-host", "ADDRESS", "Address for /metrics and /health (default: 127.0.0.1)")
    ] = None,
    log_format: Annotated[Literal["text", "json"], typer.Option("--log-format", help="Format of the output")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Output as JSON lines, same as --log-format json")] = False,
) -> None:  # fmt: skip
    """Run the jobs of an app.

    Claims jobs from the app's ledger and runs them until SIGTERM or Ctrl+C. The first signal drains
    the worker: no new job starts, and running jobs have --drain seconds to finish. A job that does
    not finish in time goes back to the queue, which does not count as an attempt. The second signal
    stops the worker immediately.

    Each failed attempt and each dead letter is logged as one line, at most 20 lines in 10 seconds.
    If the app configures logging, its log handlers receive them instead. Options override the
    environment and redrive.toml.

    Examples:
        redrive work shop:app
        redrive work shop:app --only crm.sync --threads 4
        redrive work shop:app --log-format json

    Exit codes:
        0: drained
        2: invalid option, unknown app, or no job type registered
        3: ledger not reachable, or its schema is from another version, or its file was removed
        130: stopped immediately by a second SIGINT
        143: stopped immediately by a second SIGTERM
    """
    as_json = as_json or log_format == "json"
    try:
        hand = hired(app, Terms(threads, only, drain, name, metrics_port, metrics_host))
    except LedgerError as problem:
        complain_of(problem)
        raise typer.Exit(NO_LEDGER) from None
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    out = console()

    def failed(line: str, kind: str, fields: Mapping[str, Any]) -> None:
        if as_json:
            print(json.dumps({"event": "failure", "kind": kind, **document(fields)}, default=str), flush=True)
        elif fields.get("error_class") == "LedgerRemoved":
            pass  # The message at the end says it once.
        elif out.is_terminal:
            out.print(Text(_clean(line), style="bold red" if kind in DEAD else "yellow"))
        else:
            print(_clean(line), flush=True)

    with _json(hand) if as_json else _live(hand, out) if out.is_terminal else _lines(hand):
        number = hand.run(failed)
    if number is not None:
        raise typer.Exit(128 + number)
    if hand.problem is not None:
        if hand.is_ledger_removed:
            complain(f"ledger: {hand.problem}")
        else:
            stored = f"not all results were stored ({hand.problem})"
            complain(f"ledger: {stored}; jobs that were still running are retried when their leases expire")
        raise typer.Exit(NO_LEDGER)


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
    commands = tuple(kind for kind in shift.kinds if kind not in shift.handlers)
    kinds = (("command", commands), ("handler", shift.handlers), ("dataset", shift.datasets))
    parts = [_named(what, names) for what, names in kinds if names]
    said = [f"Worker {shift.name} on {shift.url}: {'; '.join(parts)}; {pluralise(shift.threads, 'thread')}."]
    if shift.metrics is not None:
        said.append(f"Metrics at {shift.metrics}.")
    said += [f"Schedule: {kind} `{line}`." for kind, line in shift.scheduled.items()]
    for kind, count in shift.unknown.items():
        said.append(f"Not registered here: {kind}, {pluralise(count, 'job')} queued; kept for other workers.")
    return said


def _named(what: str, names: Sequence[str]) -> str:
    """So many, and the first few by name."""
    many = len(names)
    named = ", ".join(names[:PLACES]) + (f" and {many - PLACES} more" if many > PLACES else "")
    return f"{many} {what}{'' if many == 1 else 's'}, {named}"


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
    speed = rate.of(status.done + status.partitions.get("accepted", 0))
    pace = f" ({speed:,.3g}/s)" if speed else ""
    said = [] if status.partitions and not hand.shift.kinds else [_jobs(status, pace)]
    if status.partitions:
        said.append(_partitions(status.partitions, "" if said else pace))
    if status.parked:
        said.append("paused after an outage: " + ", ".join(f"{kind} ({why})" for kind, why in status.parked.items()))
    if status.trouble is not None and not status.trouble.startswith(REMOVED):
        said.append(f"ledger: {status.trouble}")
    said += [f"cannot {chore}: {why}" for chore, why in status.failing.items() if not why.startswith(REMOVED)]
    return f"{status.state}: {'; '.join(said)}"


def _jobs(status: Status, pace: str) -> str:
    ended = status.state == "ended"
    parts = [] if ended and not status.running else [f"{status.running:,} running"]
    parts += [f"{status.done:,} done{pace}", pluralise(status.again, "retry", "retries"), pluralise(status.dead, "dead letter")]
    parts += [f"{pluralise(status.late, 'result')} too late"] if status.late else []
    parts += [f"{status.overdue:,} overdue"] if status.overdue else []
    return ", ".join(parts)


def _partitions(tally: Mapping[str, int], pace: str) -> str:
    always = ("running", "accepted", "rejected", "terminal")
    shown = {what: tally[what] for what in always} | {what: many for what, many in tally.items() if many}
    says = {"accepted": f"accepted{pace}", "terminal": "gave up", "returned": "returned", "late": "too late"}
    return "partitions: " + ", ".join(f"{many:,} {says.get(what, what)}" for what, many in shown.items())


def _clean(text: str) -> str:
    return COMMANDS.sub("", text.replace("\n", " "))
