"""A worker is killed in the middle, and another one finishes: nothing is lost, nothing is done twice."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from redrive.ledger import Ledger, NewJob, open_ledger

from .hand import KIND, TABLE
from .scene import Figures, Scene
from .stage import Stage

JOBS = 80
KILLED_AFTER = 30
LEASE = 1.5
PATIENCE = 60


def _play(stage: Stage) -> Figures:
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        file = Path(folder) / "ledger.db"
        with open_ledger(f"sqlite:///{file}", migrate=True) as ledger:
            with ledger.begin() as tx:
                tx.exec_driver_sql(TABLE)
            ledger.submit_many([NewJob(KIND, f"letter:{number}") for number in range(JOBS)])
            stage.line(f"{JOBS} jobs in a SQLite file, and a worker in its own process.")
            sent = Sent(file)
            stage.bar("sent by the first", lambda: sent.by["first"])
            stage.bar("sent by the second", lambda: sent.by["second"])
            return _killed_and_finished(stage, ledger, sent)


class Sent:
    """Who has sent how many letters, as last seen: the stage asks also when the file is gone."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.by = {"first": 0, "second": 0}

    def look(self) -> dict[str, int]:
        """Count them."""
        with closing(sqlite3.connect(self.file, timeout=10)) as connection:
            self.by |= dict(connection.execute("SELECT worker, count(*) FROM sent GROUP BY worker"))
        return self.by


def _killed_and_finished(stage: Stage, ledger: Ledger, sent: Sent) -> Figures:
    with _hand(ledger.url, "first") as first:
        _until(lambda: sent.look()["first"] >= KILLED_AFTER)
        first.send_signal(signal.SIGKILL)
        first.wait()
    held, by_first = ledger.counts()[KIND].leased, sent.look()["first"]
    stage.line(f"kill -9 after {by_first} letters; the killed worker still has leases of {held}, for at most {LEASE} s", "yellow")
    with _hand(ledger.url, "second") as second:
        _until(lambda: bool(sent.look()) and second.poll() is not None)
    tally = ledger.counts()[KIND]
    with closing(sqlite3.connect(sent.file)) as connection:
        letters, rows = connection.execute("SELECT count(DISTINCT key), count(*) FROM sent").fetchone()
        (interrupted,) = connection.execute("SELECT count(*) FROM redrive_attempt WHERE outcome = 'lost'").fetchone()
    lost, doubled = JOBS - letters, rows - letters
    stage.line(f"done {tally.done} of {tally.submitted}; lost {lost}, doubled {doubled}", "green")
    if interrupted:
        stage.line("The interrupted attempt is recorded, and was repeated last and alone.")
    return {
        "jobs": tally.submitted,
        "done": tally.done,
        "by_first": sent.look()["first"],
        "by_second": sent.look()["second"],
        "interrupted": interrupted,
        "lost": lost,
        "doubled": doubled,
    }


@contextmanager
def _hand(url: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker, until the end of the block at the latest."""
    worker = subprocess.Popen([sys.executable, "-m", "redrive.demo.hand", url, name, str(LEASE)])  # noqa: S603  # our own
    try:
        yield worker
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError("the workers did not finish in time")
        time.sleep(0.01)


RESCUE = Scene(
    "rescue",
    "A worker is killed, and another one finishes the work",
    _play,
    lambda figures: (
        f"{figures['jobs']} jobs: {figures['by_first']} by the one that was killed, {figures['by_second']} by the next; "
        f"lost {figures['lost']}, doubled {figures['doubled']}"
    ),
    "docs/architecture.md",
)
