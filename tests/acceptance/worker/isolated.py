"""Commands that misbehave in processes. Each writes its attempts to a diary."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from redrive import App, RetryPolicy, current, retry
from redrive.errors import Again
from tests.acceptance.crash.diary import Diary

app = App("sqlite://")
FAST = RetryPolicy(max_attempts=5, backoff_base=0.01, backoff_max=0.02, jitter=0.0)
BRIEF = retry(max_attempts=2, backoff_base=0.01, backoff_max=0.02, jitter=0.0, attempt_timeout=0.5)
LIMIT = 300_000_000


def note(diary: str, word: str) -> None:
    """Add a line with the word, the process, and the attempt."""
    Diary(Path(diary)).note(word, os.getpid(), current().number)


@app.command("isolated.work", isolation="process", retry=FAST)
def work(diary: str, number: int) -> int:
    note(diary, "work")
    time.sleep(0.02)
    return number


@app.command("isolated.segfault", isolation="process", retry=FAST)
def segfault(diary: str) -> None:
    note(diary, "segfault")
    ctypes.string_at(0)


@app.command("isolated.exit", isolation="process", retry=FAST)
def leave(diary: str) -> None:
    note(diary, "exit")
    os._exit(0)


@app.command("isolated.kill", isolation="process", retry=FAST)
def kill(diary: str) -> None:
    """As the kernel does when memory is exhausted."""
    note(diary, "kill")
    os.kill(os.getpid(), signal.SIGKILL)


@app.command("isolated.memory", isolation="process", memory_limit=LIMIT, retry=RetryPolicy(2, 0.01, 0.02, 0.0))
def eat_memory(diary: str) -> None:
    note(diary, "memory")
    eaten = []
    while True:
        eaten.append(bytearray(10_000_000))


@app.command("isolated.loop", isolation="process", retry=BRIEF)
def loop(diary: str) -> None:
    note(diary, "loop")
    while True:
        pass


@app.command("isolated.tidy", isolation="process", retry=BRIEF)
def tidy(diary: str) -> None:
    """End by SIGTERM, and delete its files."""
    note(diary, "tidy")
    try:
        time.sleep(600)
    finally:
        note(diary, "cleaned")


@app.command("isolated.deaf", isolation="process", retry=BRIEF)
def ignore_sigterm(diary: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(diary, "deaf")
    while True:
        time.sleep(1)


@app.command("isolated.forks", isolation="process", retry=BRIEF)
def fork_often(diary: str) -> None:
    """Leave children behind: in the same group, in a session of their own, and children of children."""
    note(diary, "forks")
    for is_session in (False, True):
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=is_session)
        Diary(Path(diary)).note("child", started.pid)
    while True:
        if os.fork() == 0:
            Diary(Path(diary)).note("child", os.getpid())
        if len(Path(diary).read_text().splitlines()) > 60:
            time.sleep(600)


@app.command("isolated.returns_twice", isolation="process", retry=FAST)
def return_twice(diary: str) -> int:
    """Fork, and return in both processes."""
    child = os.fork()
    note(diary, "returned")
    return child


@app.command("isolated.long", isolation="process", retry=FAST)
def long(diary: str, seconds: float) -> None:
    note(diary, "long")
    Diary(Path(diary)).note("child", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid)
    time.sleep(seconds)
    note(diary, "ended")


@app.command("isolated.describe", isolation="process", key="shop:ann:{order}:describe:v1", retry=FAST)
def describe(order: int) -> dict[str, str]:
    """Return the values of `current()`."""
    attempt = current()
    return {"number": str(attempt.number), "operation": str(attempt.operation), "pid": str(os.getpid())}


@app.command("isolated.refuse", isolation="process", retry=FAST)
def refuse(text: str) -> None:
    """Raise an error that is permanent by the standard rule."""
    raise ValueErrorOfOurs(text)


class ValueErrorOfOurs(Exception):
    """An error that cannot be pickled: it has two arguments."""

    def __init__(self, text: str, code: int = 7, *, more: object = None) -> None:
        super().__init__(text)
        self.code, self.more, self.unpicklable = code, more, lambda: None


@app.command("isolated.selective", isolation="process", retry=retry(on=ConnectionError, max_attempts=3, backoff_base=0.01))
def select_errors(number: int) -> None:
    if current().number == 1:
        raise ConnectionError(f"no answer for {number}")
    raise KeyError(number)


@app.command("isolated.again", isolation="process", retry=FAST)
def ask_again(number: int) -> int:
    if current().number == 1:
        raise Again("not ready yet", after=0.01)
    return number


def _note_step(diary: str, word: str, number: int) -> int:
    note(diary, word)
    return number


@app.command("isolated.steps", isolation="process", retry=FAST)
def crash_between_steps(diary: str) -> list[int]:
    first = current().step("charge", _note_step, diary, "charge", 1)
    if current().number == 1:
        os._exit(3)
    return [first, current().step("ship", _note_step, diary, "ship", 2)]


@app.command("isolated.sleep", isolation="process", retry=FAST)
def sleep(diary: str) -> str:
    note(diary, "slept")
    current().sleep(seconds=0.2)
    return "awake"


@app.command("isolated.wait", isolation="process", key="shop:ann:{order}:wait:v1", retry=FAST)
def wait(diary: str, order: int) -> str:
    """Charge once, wait for a signal without a process, and return its payload."""
    current().step("charge", _note_step, diary, "charge", order)
    note(diary, "waits")
    return str(current().wait_for("approved", timeout=600)["by"])


@app.command("isolated.progress", isolation="process", retry=FAST)
def report(diary: str, gate: str) -> int:
    """Report progress, and wait until a file exists. The second attempt continues from the checkpoint of the first one."""
    position = current().last_checkpoint(0)
    note(diary, f"from-{position}")
    if position == 0:
        current().progress(0.4, "page 12 of 30")
        current().checkpoint(12)
        while not Path(gate).exists():
            time.sleep(0.005)
        os._exit(3)
    current().progress(1.0)
    return int(position)


@app.command("isolated.pages", isolation="process", retry=BRIEF)
def report_pages(pages: int) -> None:
    """Report the progress of each page, without a pause. A negative number: for ever."""
    page = 0
    while page != pages:
        page += 1
        current().progress(page / pages if pages > 0 else page % 2, f"page {page}")
