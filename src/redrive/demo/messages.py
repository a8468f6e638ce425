"""Events arrive, one of two handlers fails; its dead letters are grouped, and replayed behind a canary."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from redrive import App, Event, RetryPolicy
from redrive.core.outage import Parking
from redrive.ops import DeadLetterFilter, Operator

from .scene import Figures, Scene
from .stage import Stage

EVENTS, CANARY = 40, 3
PATIENCE = 30.0
POLICY = RetryPolicy(max_attempts=2, backoff_base=0.05, backoff_max=0.05, jitter=0)


def _play(stage: Stage) -> Figures:
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        app = App(f"sqlite:///{Path(folder) / 'school.db'}", parking=Parking.disabled())
        broken, counts, lock = threading.Event(), Counter[str](), threading.Lock()
        broken.set()

        @app.on("session.completed", name="search")
        def search(event: Event[dict[str, Any]]) -> None:
            with lock:
                counts["search"] += 1

        @app.on("session.completed", name="qscore", retry=POLICY)
        def qscore(event: Event[dict[str, Any]]) -> None:
            if broken.is_set() and event.payload["score"] % 2:
                raise ConnectionError("the database of scores refused the connection")
            with lock:
                counts["qscore"] += 1

        stage.line(
            f"{EVENTS} events for two handlers, a tenth of them duplicates. The database of one handler rejects every second one."
        )
        with app, app.worker(threads=4):
            ann = Operator(app, actor="ann")
            stage.bar("search", lambda: counts["search"])
            stage.bar("qscore", lambda: counts["qscore"])
            known = _receive(app)
            _until(lambda: counts.total() + len(ann.dead_letters.find()) == 2 * EVENTS)
            reasons = Counter(f"{letter.kind}: {letter.signature or letter.reason}" for letter in ann.dead_letters.find())
            stage.line(f"{known} duplicates were recognised. search has handled all of its {counts['search']}.")
            for reason, many in reasons.items():
                stage.line(f"{many} dead letters: {reason}", "yellow")
            dead = len(ann.dead_letters.find())
            broken.clear()
            stage.line(f"It is fixed. Replay {CANARY} first, and the rest if these succeed.")
            swept = ann.apply(
                ann.dead_letters.replay(DeadLetterFilter(kind="qscore")), because="the database is up again", canary=CANARY
            )
            _until(lambda: counts.total() == 2 * EVENTS)
            stage.line(
                f"replayed {swept.sweep.made} of {dead}: qscore has handled {counts['qscore']}, search none twice", "green"
            )
            return {
                "events": EVENTS, "known": known, "search": counts["search"], "qscore": counts["qscore"], "dead": dead,
                "replayed": swept.sweep.made,
            }  # fmt: skip


def _receive(app: App) -> int:
    """How many of them were known already."""
    known = 0
    for number in range(EVENTS):
        for _ in range(2 if number % 10 == 0 else 1):
            event = Event("session.completed", {"score": number}, id=f"s-{number}", source="web")
            known += not app.receive(event)
    return known


def _until(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise RuntimeError("the events did not finish in time")
        time.sleep(0.02)


MESSAGES = Scene(
    "messages",
    "One handler of two fails, and only its events are replayed",
    _play,
    lambda figures: (
        f"{figures['events']} events for two handlers, {figures['known']} duplicates recognised; {figures['dead']} dead "
        f"letters of one handler, {figures['replayed']} replayed"
    ),
    "docs/how-to/jobs/messages.md",
)
