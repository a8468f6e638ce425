"""Live: the shop at work, with the console beside it, until somebody has seen enough."""

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
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from redrive.ops import DeadLetterFilter, Operator

from . import shop, traffic
from .world import WORLD

BURST = 40
"""Orders at once, to begin with: there is something to see at once."""
EVERY = 0.7
DAYS = 92
SLOWLY = 2.0
"""Partitions of the backfill in a second: it can be watched for two minutes, and paused, and given another share."""
PATIENCE = 30.0
LOOK = (
    ("/", "Overview: running work and problems"),
    ("/failures", "Failures grouped by cause: a bug of the printer, errors of the warehouse"),
    ("/dead", "Dead letters to inspect and replay; the printer is fixed after a minute"),
    ("/sweeps", "Progress of replays and of the backfill"),
    ("/partitions", "Calendar of a flaky source: three months being backfilled"),
    ("/journal", "Live log records"),
)


class NotThere(Exception):
    """The console did not start; says what it said."""


def play(out: Console | None, *, port: int, seconds: float | None) -> None:
    """Until Ctrl+C, or for so many seconds. Without a console to print on: one JSON document when it is there."""
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        os.environ["REDRIVE_LEDGER"] = f"sqlite:///{Path(folder) / 'shop.db'}"
        over = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: over.set())  # in order: the console is a process of its own, and would stay
        with shop.app:
            traffic.prepared()
            with _console(port) as (url, token), shop.app.worker(threads=4), _traffic(over):
                _said(out, url, token)
                try:
                    _watch(out, over, seconds)
                except KeyboardInterrupt:
                    pass
                finally:
                    over.set()
            _summed(out)


@contextmanager
def _console(port: int) -> Iterator[tuple[str, str]]:
    """Run the console as a process of its own. Yields its address and its token."""
    command = [sys.executable, "-m", "redrive", "serve", "redrive.demo.shop:app", "--port", str(port), "--json"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603  # our own
    assert served.stdout is not None
    assert served.stderr is not None
    try:
        line = served.stdout.readline()
        if not line:
            raise NotThere(served.stderr.read().strip() or "the console ended immediately")
        started = json.loads(line)
        yield started["url"], started["token"]
    finally:
        served.terminate()
        served.wait(PATIENCE)
        served.stdout.close()
        served.stderr.close()


@contextmanager
def _traffic(over: threading.Event) -> Iterator[None]:
    for number in range(BURST):
        traffic.order(number)
    traffic.tiles(0)
    traffic.backfill(Operator(shop.app, actor="demo"), DAYS, SLOWLY)
    thread = threading.Thread(
        target=traffic.flow, args=(over,), kwargs={"first": BURST, "every": EVERY}, name="traffic", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PATIENCE)


def _said(out: Console | None, url: str, token: str) -> None:
    if out is None:
        print(json.dumps({"event": "started", "url": url, "token": token}), flush=True)
        return
    out.print(Text("A shop with all kinds of jobs, on one SQLite file. Its services fail now and then.", style="bold"))
    out.print()
    out.print(Text("  Open ").append(f"{url}?token={token}", style="cyan"), soft_wrap=True)
    out.print()
    places = Table.grid(padding=(0, 2))
    for path, what in LOOK:
        places.add_row("", Text(path, style="cyan"), what)
    out.print(places)
    out.print()
    out.print(Text(f"  REDRIVE_LEDGER={os.environ['REDRIVE_LEDGER']} redrive overview", style="dim"))
    out.print(Text("  Press Ctrl+C to stop.\n", style="dim"))


def _watch(out: Console | None, over: threading.Event, seconds: float | None) -> None:
    """Do now and then what an operator would, so that there is something to see of that too."""
    operator = Operator(shop.app, actor="demo")
    began = time.monotonic()
    acts = [(8.0, _replay_some), (14.0, _discard_one), (60.0, _mend)]
    while not over.wait(0.25):
        now = time.monotonic() - began
        while acts and now >= acts[0][0]:
            said = acts.pop(0)[1](operator)
            if out is not None and said:
                out.print(Text(f"  {now:3.0f} s  {said}"))
        if seconds is not None and now >= seconds:
            return


def _replay_some(operator: Operator) -> str | None:
    letters = operator.dead_letters.find(DeadLetterFilter(kind="analytics", limit=5))
    if not letters:
        return None
    plan = operator.dead_letters.replay(DeadLetterFilter(ids=tuple([letter.id for letter in letters])))
    operator.begin(plan, because="the warehouse is up again", canary=1)
    return f"demo replays {plan.count} dead letters of analytics, one of them first: /sweeps"


def _discard_one(operator: Operator) -> str | None:
    letters = operator.dead_letters.find(DeadLetterFilter(kind="labels.print", limit=1))
    if not letters:
        return None
    operator.apply(operator.dead_letters.discard(DeadLetterFilter(ids=(letters[0].id,))), because="the customer picked it up")
    return "demo discards a dead letter of labels.print: /audit"


def _mend(operator: Operator) -> str:
    WORLD.mended.add("printer")
    return "the printer is fixed: replay its dead letters at /dead?kind=labels.print"


def _summed(out: Console | None) -> None:
    if out is None:
        return
    counts = shop.app.ledger.counts().values()
    wrong = shop.app.ledger.imbalance()
    out.print(
        Text(f"\n{sum(one.submitted for one in counts):,} jobs, {sum(one.done for one in counts):,} done, ")
        + Text(f"{sum(one.dead for one in counts):,} dead letters; " + ("; ".join(wrong) if wrong else "totals are consistent."))
    )
