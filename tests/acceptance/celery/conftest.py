"""A Celery program with one real worker (prefork, on Redis) for the tests of a module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from redrive import App
from redrive.ledger.dead_letter import DeadLetter
from tests.acceptance.celery.program import Place, build
from tests.ledgers import sqlite_ledger
from tests.servers.fixtures import SERVERS
from tests.servers.process import die_with_parent

SOON = 120.0
ROOT = Path(__file__).parents[3]


def until(condition: Callable[[], Any]) -> Any:
    """Wait for a condition, and return its value."""
    end = time.monotonic() + SOON
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return value


def celery_worker(pool: str, *queues: str) -> list[str]:
    """Return the command of a Celery worker, which reads its default queue or these."""
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"]
    chosen = ["-Q", ",".join(queues)] if queues else []
    program = "tests.acceptance.celery.program:celery"
    return ["-m", "celery", "-A", program, "worker", "-P", pool, "-c", "2", *quiet, *chosen]


class Shop:
    """The program, as its callers and operators see it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.app: App
        self.celery: Celery
        self.app, self.celery = build(place)

    def send(self, task: str, *args: Any, **kwargs: Any) -> str:
        """Send a task, and return its id."""
        return str(self.celery.tasks[task].apply_async(args, kwargs).id)

    def letter(self, task_id: str, *, status: str = "pending", replays: int = 0, attempts: int | None = None) -> DeadLetter:
        """Wait for the dead letter of a task, and return it."""

        def find() -> DeadLetter | None:
            letters = [each for each in self.app.ledger.dead_letters(status=None) if each.ids["task_id"] == task_id]
            assert len(letters) <= 1, "a task has one dead letter"
            letter = letters[0] if letters else None
            if letter is None or (letter.status, letter.replay_count) != (status, replays):
                return None
            return letter if attempts in (None, letter.attempts) else None

        found: DeadLetter = until(find)
        return found

    def replay(self, *letters: int, because: str = "it is fixed") -> None:
        self.app.ledger.replay(list(letters), actor="ann", because=because)

    def fix(self, name: str) -> None:
        """Let a task, or the charge of an order, succeed."""
        (Path(self.place.folder) / f"{name} is fixed").touch()

    def lines(self, word: str) -> list[str]:
        """Return the notes of the tasks that contain a word."""
        diary = Path(self.place.folder) / "diary"
        return [line for line in diary.read_text().splitlines() if word in line] if diary.exists() else []

    def state(self, task_id: str) -> str:
        """Return the state of a task, as its caller reads it from the result backend."""
        return str(self.celery.backend.get_task_meta(task_id, cache=False)["status"])

    @contextmanager
    def process(self, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program for the block."""
        environment = {**os.environ, "C_FORCE_ROOT": "1", **self.place.as_environment(), **environment}
        log = Path(self.place.folder) / "log"
        with log.open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment,
                stdout=out,
                stderr=out,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )
            try:
                yield child
            finally:
                child.send_signal(signal.SIGQUIT)  # a cold shutdown of Celery
                try:
                    child.wait(10)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()

    @property
    def log(self) -> str:
        """What the processes have printed."""
        return (Path(self.place.folder) / "log").read_text()


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("celery")
    broker = request.config.stash[SERVERS].address("Redis")
    made = Shop(Place(sqlite_ledger(folder), broker, f"test-{uuid.uuid4().hex[:12]}", str(folder)))
    queues = (f"{made.place.name}-main", f"{made.place.name}-slow")
    with ExitStack() as stack:
        stack.enter_context(made.app)
        stack.callback(made.celery.close)
        stack.enter_context(made.process(*celery_worker("prefork", *queues)))
        yield made
        assert made.app.ledger.imbalance() == []
