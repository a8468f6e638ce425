"""Scenarios of stored work: a killed worker, a batch upload, parked commands, a failed handler."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from redrive import App, Event, RetryPolicy
from redrive.batch import Items, ItemStatus, Report, retrying
from redrive.core.outage import Parking
from redrive.errors import LeaseLost
from redrive.journal import Record, subscribe
from redrive.ledger import Lease, Ledger, NewJob, open_ledger
from redrive.ops import DeadLetterFilter, Operator
from redrive.testing import FaultServer

from ..shop import report_items
from .calls import fetch
from .scenario import Display, Figures, Scenario, wait_until

# ---- a worker is killed, and another one finishes the work ----

JOBS = 80
KILL_AFTER = 30
"""Letters that the first worker sends before it is killed."""
LEASE_SECONDS = 1.5
CLAIM_LIMIT = 8
SEND_SECONDS = 0.02
LETTER_KIND = "letters.send"
SENT_TABLE = "CREATE TABLE sent (key text NOT NULL, worker text NOT NULL)"
WORKER_PROGRAM = (
    "import sys; from redrive.demo.scenarios.jobs import send_letters; send_letters(*sys.argv[1:])"
)


def send_letters(url: str, worker: str) -> None:
    """Claim and run jobs until none is left, as a worker process does."""
    with open_ledger(url) as ledger:
        while True:
            ledger.maintenance.heartbeat(worker)
            ledger.reap()
            # Claim without starting: queued leases of a killed worker lose no attempt.
            leases = ledger.claim(
                {LETTER_KIND: CLAIM_LIMIT}, worker=worker, lease=LEASE_SECONDS, start=False
            )
            if not leases:
                # Jobs that were running when a worker died run last, one at a time.
                leases = ledger.claim(
                    {LETTER_KIND: 1}, worker=worker, lease=LEASE_SECONDS, start=False, alone=True
                )
            for lease in leases:
                for started in ledger.start([lease]):
                    _send_letter(ledger, started, worker)
            if not leases:
                counts = ledger.counts()[LETTER_KIND]
                if not counts.ready + counts.leased:
                    return
                time.sleep(0.05)


def _send_letter(ledger: Ledger, lease: Lease, worker: str) -> None:
    time.sleep(SEND_SECONDS)
    try:
        with ledger.begin() as tx:  # the effect and the settlement commit together
            tx.exec_driver_sql("INSERT INTO sent VALUES (?, ?)", (lease.key, worker))
            ledger.settle(lease.done(), tx=tx)
    except LeaseLost:  # frozen for too long, so another worker has the job; nothing was changed
        ledger.maintenance.count_late([lease.done()])


class SentLetters:
    """The number of letters by worker, as of the last `count`.

    The display reads it also after the file was deleted.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.by_worker = {"first": 0, "second": 0}

    def count(self) -> dict[str, int]:
        """Count the letters in the file."""
        with closing(sqlite3.connect(self.file, timeout=10)) as connection:
            rows = connection.execute("SELECT worker, count(*) FROM sent GROUP BY worker")
            self.by_worker |= dict(rows)
        return self.by_worker


def _kill_worker(display: Display) -> Figures:
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        file = Path(folder) / "ledger.db"
        with open_ledger(f"sqlite:///{file}", migrate=True) as ledger:
            with ledger.begin() as tx:
                tx.exec_driver_sql(SENT_TABLE)
            ledger.submit_many([NewJob(LETTER_KIND, f"letter:{number}") for number in range(JOBS)])
            display.line(f"{JOBS} jobs in a SQLite file, and a worker in its own process.")
            sent = SentLetters(file)
            display.bar("sent by the first", lambda: sent.by_worker["first"])
            display.bar("sent by the second", lambda: sent.by_worker["second"])
            return _kill_and_finish(display, ledger, sent)


def _kill_and_finish(display: Display, ledger: Ledger, sent: SentLetters) -> Figures:
    with _worker_process(ledger.url, "first") as first:
        wait_until(lambda: sent.count()["first"] >= KILL_AFTER, "first worker")
        first.send_signal(signal.SIGKILL)
        first.wait()
    display.line(
        f"kill -9 after {sent.count()['first']} letters; the killed worker still has leases of "
        f"{ledger.counts()[LETTER_KIND].leased}, for at most {LEASE_SECONDS} s",
        "yellow",
    )
    with _worker_process(ledger.url, "second") as second:
        wait_until(lambda: bool(sent.count()) and second.poll() is not None, "second worker")
    counts = ledger.counts()[LETTER_KIND]
    with closing(sqlite3.connect(sent.file)) as connection:
        letters, rows = connection.execute(
            "SELECT count(DISTINCT key), count(*) FROM sent"
        ).fetchone()
        (interrupted,) = connection.execute(
            "SELECT count(*) FROM redrive_attempt WHERE outcome = 'lost'"
        ).fetchone()
    lost, doubled = JOBS - letters, rows - letters
    display.line(
        f"done {counts.done} of {counts.submitted}; lost {lost}, doubled {doubled}", "green"
    )
    if interrupted:
        display.line("The interrupted attempt is recorded, and was repeated last and alone.")
    return {
        "jobs": counts.submitted,
        "done": counts.done,
        "by_first": sent.count()["first"],
        "by_second": sent.count()["second"],
        "interrupted": interrupted,
        "lost": lost,
        "doubled": doubled,
    }


@contextmanager
def _worker_process(url: str, worker: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process, at most until the end of the block."""
    command = [sys.executable, "-c", WORKER_PROGRAM, url, worker]
    process = subprocess.Popen(command)  # noqa: S603  # our own program
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


KILLED_WORKER = Scenario(
    "rescue",
    "A worker is killed, and another one finishes the work",
    _kill_worker,
    lambda figures: (
        f"{figures['jobs']} jobs: {figures['by_first']} by the one that was killed, "
        f"{figures['by_second']} by the next; "
        f"lost {figures['lost']}, doubled {figures['doubled']}"
    ),
    "docs/architecture.md",
)


# ---- a damaged item is given up, and an outage gives up none ----

UPLOAD_ITEMS = 60
DAMAGED_ITEM = "t17"
OVERLOADED_PASSES = 2
"""Passes in which the receiver rejects every item."""
ITEM_ATTEMPTS = 3


class Uploader:
    """A sender whose receiver is overloaded at first, and always rejects the damaged item."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.received: Counter[str] = Counter()
        self.accepted: set[str] = set()

    def send_pending(self) -> Report:
        """Send the pending items, and report on each."""
        names = (f"t{number}" for number in range(UPLOAD_ITEMS))
        pending = self.items.pending([name for name in names if name not in self.accepted])
        statuses = [self._send(item) for item in sorted(pending)]
        return report_items(statuses)

    def _send(self, item: str) -> ItemStatus:
        self.received[item] += 1
        if item == DAMAGED_ITEM:
            return ItemStatus(item, "rejected", "checksum mismatch")
        if self.received[item] <= OVERLOADED_PASSES:
            return ItemStatus(item, "rejected", "503 overloaded")
        self.accepted.add(item)
        return ItemStatus(item, "acknowledged")


def _upload_batch(display: Display) -> Figures:
    def show(record: Record) -> None:
        fields = record.fields
        if record.kind == "batch_outage":
            display.line(
                f"{fields['items']} rejected for one reason ({fields['reason']}): "
                "an outage, which counts as no attempt",
                "yellow",
            )
        elif record.kind == "batch_retry":
            display.line(
                f"retry {fields['retry']} in {fields['wait']:.1f} s, {fields['pending']} pending"
            )
        elif record.kind == "giveup":
            display.line(
                f"{fields['item']} is given up after {fields['attempts']} rejections: "
                f"{fields['reason']}",
                "red",
            )

    display.line(
        f"{UPLOAD_ITEMS} items in one batch, one of them damaged. "
        "The receiver is overloaded at first."
    )
    with App("sqlite://") as app:
        items = app.items("tiles")
        uploader = Uploader(items)
        display.bar("sent", uploader.received.total)
        display.bar("arrived", lambda: len(uploader.accepted))
        unsubscribe = subscribe(show, inline=True)
        try:
            policy = RetryPolicy(max_attempts=4, backoff_base=0.3, jitter=0)
            batch = retrying(uploader, items=items, retry=policy, item_attempts=ITEM_ATTEMPTS)
            report = batch.send_pending()
        finally:
            unsubscribe()
    arrived, given_up = report.count("acknowledged"), report.count("giveup")
    pending = report.count("pending")
    display.line(f"{arrived} arrived, {given_up} given up, {pending} pending", "green")
    return {
        "items": UPLOAD_ITEMS,
        "sent": uploader.received.total(),
        "arrived": arrived,
        "given_up": given_up,
        "pending": pending,
    }


BATCH_UPLOAD = Scenario(
    "uploads",
    "A damaged item is given up, an outage gives up none",
    _upload_batch,
    lambda figures: (
        f"{figures['items']} items, rejected {OVERLOADED_PASSES} times in an outage: "
        f"{figures['arrived']} arrived, {figures['given_up']} damaged one given up"
    ),
    "docs/how-to/data/batches.md",
)


# ---- commands of a service that is down are parked ----

COMMANDS = 30
COMMAND_RETRY = RetryPolicy(max_attempts=2, backoff_base=0.3, jitter=0.2)
OBSERVE_SECONDS = 1.2


def _park_commands(display: Display) -> Figures:
    with (
        tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder,
        FaultServer(503) as server,
    ):
        app = App(f"sqlite:///{Path(folder) / 'shop.db'}", parking=Parking(first=0.5))

        @app.command("receipts.send", key="shop:ann:{order}:receipt:v1", retry=COMMAND_RETRY)
        def send(order: int) -> None:
            fetch(server.url)

        app.submit_many(send.bind(order) for order in range(COMMANDS))
        display.line(f"{COMMANDS} commands with two attempts each call a service that returns 503.")
        with app, app.worker(threads=4) as worker:
            # The display reads these numbers also after the worker has stopped.
            latest = {"done": 0, "requests": 0}
            display.bar("requests", lambda: latest["requests"])
            display.bar("commands done", lambda: latest["done"])

            def count_done() -> int:
                latest.update(done=worker.status.done, requests=server.count)
                return latest["done"]

            wait_until(lambda: count_done() >= 0 and bool(worker.status.parked), "outage")
            display.line(
                f"parked after {server.count} requests: "
                "recognised as an outage, which counts as no attempt",
                "yellow",
            )
            end = time.monotonic() + OBSERVE_SECONDS
            wait_until(lambda: count_done() >= 0 and time.monotonic() >= end, "outage")
            requests_while_down = server.count
            server.script(200)
            display.line(f"{requests_while_down} requests while it was down. Now it is up again.")
            wait_until(lambda: count_done() == COMMANDS, "commands")
            dead = len(app.ledger.dead_letters())
            display.line(f"done {latest['done']} of {COMMANDS}, dead letters {dead}", "green")
            return {
                "commands": COMMANDS,
                "done": latest["done"],
                "dead": dead,
                "requests_while_down": requests_while_down,
            }


PARKED_COMMANDS = Scenario(
    "commands",
    "A service is down, and its commands are paused",
    _park_commands,
    lambda figures: (
        f"{figures['commands']} commands, {figures['requests_while_down']} requests while it was "
        f"down, {figures['done']} done, {figures['dead']} dead"
    ),
    "docs/how-to/jobs/background-jobs.md",
)


# ---- one of two handlers fails, and its dead letters are replayed behind a canary ----

EVENTS, CANARY = 40, 3
HANDLER_RETRY = RetryPolicy(max_attempts=2, backoff_base=0.05, backoff_max=0.05, jitter=0)


def _replay_handler(display: Display) -> Figures:
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        app = App(f"sqlite:///{Path(folder) / 'school.db'}", parking=Parking.disabled())
        is_broken, counts, lock = threading.Event(), Counter[str](), threading.Lock()
        is_broken.set()

        @app.on("session.completed", name="search")
        def search(event: Event[dict[str, Any]]) -> None:
            with lock:
                counts["search"] += 1

        @app.on("session.completed", name="qscore", retry=HANDLER_RETRY)
        def qscore(event: Event[dict[str, Any]]) -> None:
            if is_broken.is_set() and event.payload["score"] % 2:
                raise ConnectionError("the database of scores refused the connection")
            with lock:
                counts["qscore"] += 1

        display.line(
            f"{EVENTS} events for two handlers, a tenth of them duplicates. "
            "The database of one handler rejects every second one."
        )
        with app, app.worker(threads=4):
            ann = Operator(app, actor="ann")
            display.bar("search", lambda: counts["search"])
            display.bar("qscore", lambda: counts["qscore"])
            duplicates = _receive_events(app)
            find_letters = ann.dead_letters.find
            wait_until(lambda: counts.total() + len(find_letters()) == 2 * EVENTS, "events")
            letters = find_letters()
            display.line(
                f"{duplicates} duplicates were recognised. "
                f"search has handled all of its {counts['search']}."
            )
            groups = Counter(f"{each.kind}: {each.signature or each.reason}" for each in letters)
            for group, count in groups.items():
                display.line(f"{count} dead letters: {group}", "yellow")
            is_broken.clear()
            display.line(f"It is fixed. Replay {CANARY} first, and the rest if these succeed.")
            plan = ann.dead_letters.replay(DeadLetterFilter(kind="qscore"))
            applied = ann.apply(plan, because="the database is up again", canary=CANARY)
            wait_until(lambda: counts.total() == 2 * EVENTS, "replay")
            display.line(
                f"replayed {applied.sweep.made} of {len(letters)}: "
                f"qscore has handled {counts['qscore']}, search none twice",
                "green",
            )
            return {
                "events": EVENTS,
                "known": duplicates,
                "search": counts["search"],
                "qscore": counts["qscore"],
                "dead": len(letters),
                "replayed": applied.sweep.made,
            }


def _receive_events(app: App) -> int:
    """Receive the events, every tenth of them twice. Return the number of duplicates."""
    duplicates = 0
    for number in range(EVENTS):
        for _ in range(2 if number % 10 == 0 else 1):
            event = Event("session.completed", {"score": number}, id=f"s-{number}", source="web")
            duplicates += not app.receive(event)
    return duplicates


FAILED_HANDLER = Scenario(
    "messages",
    "One handler of two fails, and only its events are replayed",
    _replay_handler,
    lambda figures: (
        f"{figures['events']} events for two handlers, {figures['known']} duplicates recognised; "
        f"{figures['dead']} dead letters of one handler, {figures['replayed']} replayed"
    ),
    "docs/how-to/jobs/messages.md",
)
