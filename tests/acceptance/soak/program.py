"""The programs of the soak.

python -m tests.acceptance.soak.program work NAME      run jobs until SIGTERM (`steady` does the same)
python -m tests.acceptance.soak.program submit NAME    submit jobs until the file `stop` exists

SIGUSR1 sets the clock of a process ahead by 20 s, and the next one sets it back. Only a ledger on SQLite uses that clock.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import Connection, text

from redrive import App, Event, RetryPolicy, Stop, current, retry
from redrive.errors import Cancelled, LedgerUnavailable, SignalTimeout
from redrive.ledger.db import clock
from tests.acceptance.crash.diary import Diary

FOLDER, LEDGER = "REDRIVE_SOAK_FOLDER", "REDRIVE_SOAK_LEDGER"
EFFECTS_TABLE = "soak_effect"
END = "."
"""The last word of each line. A line that a full disk has cut lacks it."""
ACCOUNTS = 5
STEPS = ("first", "second", "third")
JUMP = 20 * 10**9
"""Nanoseconds. Longer than a lease."""
WORK_SECONDS = 0.01
FAST = RetryPolicy(max_attempts=8, backoff_base=0.2, backoff_max=1.0, jitter=0.1)

app = App(os.environ.get(LEDGER, "sqlite://"))
_diaries: dict[str, Diary] = {}


def note(file: str, *words: object) -> None:
    """Append a line to a file of the soak."""
    diary = _diaries.get(file)
    if diary is None:
        diary = _diaries[file] = Diary(Path(os.environ[FOLDER]) / file)
    diary.note(*words, END)


def _effect(kind: str, number: str) -> None:
    note("effects", kind, number, f"{time.time():.3f}")


@app.command("plain", key="soak::{number}:plain:v1", retry=FAST)
def plain(number: str) -> None:
    """An effect that may repeat after a crash."""
    time.sleep(WORK_SECONDS)
    _effect("plain", number)


@app.command("async", key="soak::{number}:async:v1", retry=FAST)
async def in_loop(number: str) -> None:
    """The same in the event loop."""
    _effect("async", number)


@app.command("paid", key="soak::{number}:paid:v1", in_transaction=True, retry=FAST)
def pay(connection: Connection, number: str) -> None:
    """An effect that commits with its job. Its table has no unique key, so that a second one would be seen."""
    connection.execute(text(f"INSERT INTO {EFFECTS_TABLE} (number) VALUES (:number)"), {"number": number})


@app.command("flaky", key="soak::{number}:flaky:v1", retry=FAST)
def flaky(number: str) -> None:
    """Fails in three of ten attempts."""
    if random.random() < 0.3:
        raise ConnectionError(f"no answer for {number}")
    _effect("flaky", number)


@app.command("bad", key="soak::{number}:bad:v1", retry=FAST)
def bad(number: str) -> None:
    """Becomes a dead letter."""
    raise Stop(f"{number} is not valid")


@app.command("steps", key="soak::{number}:steps:v1", retry=FAST)
def steps(number: str) -> None:
    """Three steps, and a sleep between them."""
    for name in STEPS:
        current().step(name, _effect, f"step-{name}", number)
        if name == STEPS[0]:
            current().sleep(seconds=1)
    _effect("steps", number)


@app.command("waits", key="soak::{number}:waits:v1", retry=FAST)
def waits(number: str) -> None:
    """Waits for a signal that may never come."""
    with suppress(SignalTimeout):
        current().wait_for("go", timeout=timedelta(seconds=5))
    _effect("waits", number)


@app.command("isolated", key="soak::{number}:isolated:v1", isolation="process", retry=FAST)
def in_process(number: str) -> None:
    """Runs in a process."""
    _effect("isolated", number)


@app.command("ordered", key="soak::{number}:ordered:v1", sequence="{account}", retry=FAST)
def in_order(number: str, account: str) -> None:
    """Runs after the job before it of its account."""
    note("order", account, number, "begin")
    _effect("ordered", number)
    note("order", account, number, "end")


@app.command("shared", key="soak::{number}:shared:v1", tenant="{tenant}", tenant_concurrency=2, retry=FAST)
def for_tenant(number: str, tenant: str) -> None:
    """Shares the workers between tenants."""
    time.sleep(WORK_SECONDS)
    _effect("shared", number)


@app.command("every-minute", cron="* * * * *")
def every_minute() -> None:
    """Runs on a schedule."""


@app.on("soak.event", name="handler", retry=FAST)
def handler(event: Event[dict[str, Any]]) -> None:
    """Handles an event, which may arrive twice."""
    _effect("handler", event.payload["number"])


@retry(on=LedgerUnavailable, max_attempts=1000, backoff_base=0.1, backoff_max=1.0, attempt_timeout=None)
def _submit_one(kind: str, number: str) -> None:
    match kind:
        case "ordered":
            in_order.submit(number, account=number.rpartition("-")[2])
        case "shared":
            for_tenant.submit(number, tenant=f"t{random.randrange(20)}")
        case "handler":
            event = Event("soak.event", {"number": number}, id=number, source="soak")
            app.receive(event)
            app.receive(event)
        case "cancelled":
            with suppress(Cancelled):  # an earlier try has cancelled it
                plain.submit(number).cancel(because="soak")
        case "waits":
            job = waits.submit(number)
            if random.random() < 0.7:
                with suppress(LookupError):  # it has ended, if this is not the first try
                    app.signal(job.key, "go", {})
        case _:
            COMMANDS[kind].submit(number)


COMMANDS: dict[str, Any] = {
    "plain": plain, "async": in_loop, "paid": pay, "flaky": flaky, "bad": bad, "steps": steps, "isolated": in_process,
}  # fmt: skip
KINDS = (*COMMANDS, "ordered", "shared", "handler", "cancelled", "waits")


def submit(name: str) -> None:
    """Submit jobs. Note each one before it is submitted, and when it is acknowledged."""
    folder = Path(os.environ[FOLDER])
    at = 0
    # Accounts belong to one submitter: only then is the order of submissions the order of the numbers.
    while not (folder / "stop").exists():
        kind = random.choice(KINDS)
        number = f"{name}-{os.getpid()}-{at}-{name}{at % ACCOUNTS}"
        _submit_one(kind, number)
        note("acknowledged", "plain" if kind == "cancelled" else kind, number)
        at += 1
        time.sleep(random.expovariate(25))


def work(name: str) -> None:
    """Run jobs until SIGTERM."""
    app.work(threads=4, processes=1, drain=5, name=name)


def _let_clock_jump() -> None:
    moved = 0

    def jump(_signal: int, _frame: FrameType | None) -> None:
        nonlocal moved
        moved = 0 if moved else JUMP

    class Time:
        """The module `time` with another clock."""

        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

        @staticmethod
        def time_ns() -> int:
            return time.time_ns() + moved

    setattr(clock, "time", Time())  # noqa: B010  # mypy knows no such attribute
    signal.signal(signal.SIGUSR1, jump)


if __name__ == "__main__":
    _let_clock_jump()
    {"work": work, "steady": work, "submit": submit}[sys.argv[1]](sys.argv[2])
