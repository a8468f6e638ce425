"""A service goes down under a pile of commands: they wait, one probes, and all are done when it is back."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from redrive import App, RetryPolicy
from redrive.core.outage import Parking
from redrive.testing import FaultServer

from .client import fetch
from .scene import Figures, Scene
from .stage import Stage

COMMANDS = 30
PATIENCE = 30.0
POLICY = RetryPolicy(max_attempts=2, backoff_base=0.3, jitter=0.2)


def _play(stage: Stage) -> Figures:
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder, FaultServer(503) as server:
        app = App(f"sqlite:///{Path(folder) / 'shop.db'}", parking=Parking(first=0.5))

        @app.command("receipts.send", key="shop:ann:{order}:receipt:v1", retry=POLICY)
        def send(order: int) -> None:
            fetch(server.url)

        app.submit_many(send.bind(order) for order in range(COMMANDS))
        stage.line(f"{COMMANDS} commands with two attempts each call a service that returns 503.")
        with app, app.worker(threads=4) as worker:
            seen = {"done": 0, "requests": 0}
            stage.bar("requests", lambda: seen["requests"])
            stage.bar("commands done", lambda: seen["done"])

            def look() -> int:
                seen.update(done=worker.status.done, requests=server.count)
                return seen["done"]

            _until(lambda: look() >= 0 and bool(worker.status.parked))
            stage.line(f"parked after {server.count} requests: recognised as an outage, which counts as no attempt", "yellow")
            _for(1.2, look)
            asked = server.count
            server.script(200)
            stage.line(f"{asked} requests while it was down. Now it is up again.")
            _until(lambda: look() == COMMANDS)
            dead = len(app.ledger.dead_letters())
            stage.line(f"done {worker.status.done} of {COMMANDS}, dead letters {dead}", "green")
            return {"commands": COMMANDS, "done": worker.status.done, "dead": dead, "requests_while_down": asked}


def _until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError("the commands did not finish in time")
        time.sleep(0.02)


def _for(seconds: float, look: Callable[[], object]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        look()
        time.sleep(0.02)


PARKED = Scene(
    "commands",
    "A service is down, and its commands are paused",
    _play,
    lambda figures: (
        f"{figures['commands']} commands, {figures['requests_while_down']} requests while it was down, "
        f"{figures['done']} done, {figures['dead']} dead"
    ),
    "docs/how-to/jobs/background-jobs.md",
)
