"""The live demo: the shop with traffic, a worker and the console, until Ctrl+C.

A simulated day before it fills the charts from the start.
"""

from __future__ import annotations

import json
import math
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
from random import Random

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..ledger.ledger import Ledger
from ..ledger.stats import activity
from ..ledger.stats.activity import ALL_KINDS, SUMMED, ActivityRow, minute_of
from ..ledger.stats.histogram import bucket_of, merge
from ..ops import DeadLetterFilter, Operator
from . import shop, traffic
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


# --- The day before

KINDS = {"orders.charge": 0.35, "crm.sync": 0.9, "labels.print": 0.12, "analytics": 0.05}
"""Job types of the shop, with the median of their run times in seconds."""
DAY_MINUTES, FINE_MINUTES = 1440, 160
"""Length of the history, and the part of it that is kept by the minute."""
OUTAGE = range(520, 580)
"""Minutes before now in which the CRM was down."""
MICROS = 1_000_000


def write_history(ledger: Ledger, /, *, seed: int = 7) -> None:
    """Write the activity of one simulated day, in one transaction.

    Args:
        ledger: The ledger of the demo.
        seed: Of the random numbers.
    """
    now = minute_of(ledger.now())
    with ledger.connections.write.use() as session:
        activity.write(session, SUMMED, list(_rows(now, Random(seed))))


def _rows(now: int, random: Random) -> Iterator[ActivityRow]:
    start = (now - DAY_MINUTES) // 10 * 10
    fine = (now - FINE_MINUTES) // 10 * 10
    slots = [(slot, 10) for slot in range(start, fine, 10)]
    slots += [(slot, 1) for slot in range(fine, now - 1)]
    for slot, span in slots:
        rows = [_row(kind, slot, span, now, random) for kind in KINDS]
        yield from rows
        yield activity.total(ALL_KINDS, slot, span, rows)


def _row(kind: str, slot: int, span: int, now: int, random: Random) -> ActivityRow:
    # Twice as many orders by day as by night.
    busy = 1.5 + math.sin((slot % DAY_MINUTES) / DAY_MINUTES * 2 * math.pi - math.pi / 2)
    count = max(1, round(span * busy * random.uniform(2, 4)))
    is_down = kind == "crm.sync" and now - slot in OUTAGE
    failed = count if is_down else sum(random.random() < 0.02 for _ in range(count))
    dead = failed // 4 if is_down else int(failed > 2 and kind == "labels.print")
    done = 0 if is_down else count
    slow = 6.0 if is_down else 1.0
    waits = [_bucket(random, 0.02 * slow * slow * busy) for _ in range(count)]
    runs = [_bucket(random, KINDS[kind] * slow) for _ in range(count)]
    wait, run = merge({each: 1} for each in waits), merge({each: 1} for each in runs)
    return ActivityRow(kind, slot, span, done, failed, dead, 0, wait, run)


def _bucket(random: Random, median: float) -> int:
    return bucket_of(median * random.lognormvariate(0, 0.6) * MICROS)
