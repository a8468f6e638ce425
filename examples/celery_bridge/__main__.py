"""Run the example with `python -m examples.celery_bridge`. It needs Redis, at REDIS_URL or on localhost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TypeVar

from redrive.ops import DeadLetterFilter, Operator

from .shop import MAIL_SERVER, OUTBOX, app, send_receipt

T = TypeVar("T")
QUIET = ("--without-gossip", "--without-mingle", "--loglevel", "ERROR")


@contextmanager
def celery_worker():
    """Run a worker of Celery for the block. In production: `celery -A examples.celery_bridge.shop:celery worker`."""
    program = [sys.executable, "-m", "celery", "-A", "examples.celery_bridge.shop:celery", "worker", "-P", "solo"]
    worker = subprocess.Popen([*program, *QUIET], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


def wait_for(condition: Callable[[], T], seconds: float = 60) -> T:
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            sys.exit(f"nothing happened within {seconds:g} s; is Redis at REDIS_URL?")
        time.sleep(0.1)
    return value


def main() -> None:
    """Let two tasks fail for good, fix the cause, and replay them: one first, then the rest."""
    MAIL_SERVER.unlink(missing_ok=True)
    operator = Operator(app, actor="ann")
    with app, celery_worker():
        send_receipt.delay("o-1", "ann@example.com", api_key="sk-0123456789abcdef")
        send_receipt.delay("o-2", "bob@example.com", api_key="sk-0123456789abcdef")
        letters = wait_for(lambda: len(found := operator.dead_letters.find()) == 2 and found)
        for letter in letters:
            print(f"dead letter {letter.id}: {letter.kind}, {letter.attempts} attempts, {letter.error.partition(chr(10))[0]}")
        MAIL_SERVER.touch()
        plan = operator.dead_letters.replay(DeadLetterFilter(kind="celery:receipts.send"))
        with app.worker():  # in production: redrive work examples.celery_bridge.shop:app
            operator.apply(plan, because="the mail server is back", canary=1)
            wait_for(lambda: len(operator.dead_letters.find(status="replayed")) >= 2)
    print(f"replayed, and sent:\n{OUTBOX.read_text()}", end="")


if __name__ == "__main__":
    main()
