"""A program whose commands run on Temporal, for tests that kill its worker: `redrive work tests...program:app`."""

from __future__ import annotations

import os
import time
from pathlib import Path

from redrive import App, RetryPolicy, Stop, Temporal, current

QUICK = RetryPolicy(max_attempts=5, backoff_base=0.02, backoff_max=0.05, jitter=0)
app = App(
    os.environ["PROGRAM_LEDGER"],
    engine=Temporal(os.environ["PROGRAM_TEMPORAL"], task_queue=os.environ["PROGRAM_QUEUE"], heartbeat=1),
)


def note(line: str) -> None:
    """Write a line that stays when the process is killed."""
    with Path(os.environ["PROGRAM_DIARY"]).open("a") as diary:
        diary.write(f"{line}\n")


@app.command("parcels.pack", key="shop:{user}:{number}:pack:v1", retry=QUICK)
def pack(number: int, user: str) -> int:
    note(f"pack {number}")
    return number * 2


@app.command("parcels.lose", key="shop:{user}:1:lose:v1", retry=QUICK)
def lose(user: str) -> None:
    note("lose")
    raise Stop("it is lost")


@app.command("parcels.carry", key="shop:{user}:1:carry:v1", retry=QUICK)
def carry(user: str) -> int:
    note(f"carry {current().number}")
    if current().number == 1:
        time.sleep(60)  # until it is killed
    return current().number
