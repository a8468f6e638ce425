"""The live demo: the shop with traffic, a worker and the console, until Ctrl+C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.ops import DeadLetterFilter, Operator

from . import shop, traffic
from .history import write_history
from .shop import SERVICES

FIRST_ORDERS = 40
"""Orders placed before the console is announced, so that every page has content."""
ORDER_INTERVAL_SECONDS = 0.7
BACKFILL_DAYS = 92
BACKFILL_RATE = 2.0
"""Partitions in a second. The backfill runs for two minutes, so that it can be watched."""
STOP_SECONDS = 30.0
PAGES = (
    ("/", "Overview: running work and problems"),
    ("/activity", "Throughput, queue wait and run time; the day before now is simulated"),
    ("/failures", "Failures grouped by cause: a bug of the printer, errors of the warehouse"),
    ("/dead", "Dead letters to inspect and replay; the printer is fixed after a minute"),
    ("/sweeps", "Progress of replays and of the backfill"),
    ("/partitions", "Calendar of a flaky source: three months being backfilled"),
    ("/journal", "Live log records"),
)


class ConsoleNotStarted(Exception):
    """The console did not start. The message is its error output."""


def run_live(*, as_json: bool, port: int, seconds: float | None) -> None:
    """Run the shop until Ctrl+C.

    Args:
        as_json: Print only one JSON document, once the console is started.
        port: Port of the console.
        seconds: Stop after this many seconds. None: run until Ctrl+C.
    """
    out = None if as_json else Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        os.environ["REDRIVE_LEDGER"] = f"sqlite:///{Path(folder) / 'shop.db'}"
        stop = threading.Event()
        # Stop in order: the console is a separate process and would stay behind.
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        with shop.app:
            shop.create_tables()
            write_history(shop.app.ledger)
            with (
                _console_process(port) as (url, token),
                shop.app.worker(threads=4),
                _traffic_thread(stop),
            ):
                _announce(out, url, token)
                with suppress(KeyboardInterrupt):
                    _act_as_operator(out, stop, seconds)
            if out is not None:
                _print_totals(out)


@contextmanager
def _console_process(port: int) -> Iterator[tuple[str, str]]:
    """Run the console in a process. Yields its URL and its token."""
    command = [sys.executable, "-m", "redrive", "serve", "redrive.demo.shop:app"]
    process = subprocess.Popen(  # noqa: S603  # our own command
        [*command, "--port", str(port), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        if not line:
            error = process.stderr.read().strip()
            raise ConsoleNotStarted(error or "the console ended immediately")
        started = json.loads(line)
        yield started["url"], started["token"]
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        process.stdout.close()
        process.stderr.close()


@contextmanager
def _traffic_thread(stop: threading.Event) -> Iterator[None]:
    for number in range(FIRST_ORDERS):
        traffic.place_order(number)
    traffic.send_batch(0)
    traffic.start_backfill(Operator(shop.app, actor="demo"), BACKFILL_DAYS, BACKFILL_RATE)
    options = {"first": FIRST_ORDERS, "interval": ORDER_INTERVAL_SECONDS}
    thread = threading.Thread(
        target=traffic.place_orders, args=(stop,), kwargs=options, name="traffic", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(STOP_SECONDS)


def _announce(out: Console | None, url: str, token: str) -> None:
    if out is None:
        print(json.dumps({"event": "started", "url": url, "token": token}), flush=True)
        return
    summary = "A shop with all kinds of jobs, on one SQLite file. Its services fail now and then."
    out.print(Text(summary, style="bold"))
    out.print()
    out.print(Text("  Open ").append(f"{url}?token={token}", style="cyan"), soft_wrap=True)
    out.print()
    pages = Table.grid(padding=(0, 2))
    for path, description in PAGES:
        pages.add_row("", Text(path, style="cyan"), description)
    out.print(pages)
    out.print()
    ledger = os.environ["REDRIVE_LEDGER"]
    out.print(Text(f"  REDRIVE_LEDGER={ledger} redrive overview", style="dim"))
    out.print(Text("  Press Ctrl+C to stop.\n", style="dim"))


def _act_as_operator(out: Console | None, stop: threading.Event, seconds: float | None) -> None:
    """Replay, discard and fix at fixed times, so that the pages show operator actions too."""
    operator = Operator(shop.app, actor="demo")
    started = time.monotonic()
    actions = [(8.0, _replay_analytics), (14.0, _discard_label), (60.0, _fix_printer)]
    while not stop.wait(0.25):
        elapsed = time.monotonic() - started
        while actions and elapsed >= actions[0][0]:
            message = actions.pop(0)[1](operator)
            if out is not None and message:
                out.print(Text(f"  {elapsed:3.0f} s  {message}"))
        if seconds is not None and elapsed >= seconds:
            return


def _replay_analytics(operator: Operator) -> str | None:
    letters = operator.dead_letters.find(DeadLetterFilter(kind="analytics", limit=5))
    if not letters:
        return None
    ids = tuple(letter.id for letter in letters)
    plan = operator.dead_letters.replay(DeadLetterFilter(ids=ids))
    operator.begin(plan, because="the warehouse is up again", canary=1)
    return f"demo replays {plan.count} dead letters of analytics, one of them first: /sweeps"


def _discard_label(operator: Operator) -> str | None:
    letters = operator.dead_letters.find(DeadLetterFilter(kind="labels.print", limit=1))
    if not letters:
        return None
    plan = operator.dead_letters.discard(DeadLetterFilter(ids=(letters[0].id,)))
    operator.apply(plan, because="the customer picked it up")
    return "demo discards a dead letter of labels.print: /audit"


def _fix_printer(_operator: Operator) -> str:
    SERVICES.fixed.add("printer")
    return "the printer is fixed: replay its dead letters at /dead?kind=labels.print"


def _print_totals(out: Console) -> None:
    counts = shop.app.ledger.counts().values()
    submitted, done, dead = (
        sum(getattr(kind, name) for kind in counts) for name in ("submitted", "done", "dead")
    )
    problems = "; ".join(shop.app.ledger.imbalance()) or "totals are consistent."
    out.print(Text(f"\n{submitted:,} jobs, {done:,} done, {dead:,} dead letters; {problems}"))
