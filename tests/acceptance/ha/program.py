"""The programs of the drill: workers run `app`, and `python -m tests.acceptance.ha.program NAME` submits jobs.

Both continue automatically when the primary is lost. Each line of their files is one write, so that a kill cuts none.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from redrive import App, RetryPolicy, retry
from redrive.errors import LedgerUnavailable

FOLDER, LEDGER = "REDRIVE_DRILL_FOLDER", "REDRIVE_DRILL_LEDGER"
JOB_SECONDS, SUBMIT_SECONDS = 0.02, 0.02
app = App(os.environ.get(LEDGER, "sqlite://"))


def write(file: str, line: str) -> None:
    """Append a line with the time."""
    handle = os.open(Path(os.environ[FOLDER]) / file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    try:
        os.write(handle, f"{line} {time.time():.3f}\n".encode())
    finally:
        os.close(handle)


@app.command("drill", key="drill:{user}:{number}:run:v1", retry=RetryPolicy(max_attempts=20))
def run(number: int, user: str) -> None:
    """A short job that leaves a line for each time it runs."""
    time.sleep(JOB_SECONDS)
    write("runs", f"{user}/{number}")


@retry(on=LedgerUnavailable, max_attempts=1000, backoff_base=0.1, backoff_max=1.0, attempt_timeout=None)
def submit(number: int, user: str) -> None:
    """Submit with the same key until it is acknowledged."""
    run.submit(number, user=user)


def main(name: str) -> None:
    """Submit jobs until the file `stop` exists."""
    number = 0
    while not (Path(os.environ[FOLDER]) / "stop").exists():
        submit(number, name)
        write("acknowledged", f"{name}/{number}")
        number += 1
        time.sleep(SUBMIT_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
