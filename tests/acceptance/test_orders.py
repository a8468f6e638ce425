"""examples/orders, killed by SIGKILL before and after each commit: each effect happens once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.orders.services import effects
from redrive.ledger import Ledger, open_ledger
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made  # noqa: F401  # the same databases, created once
from tests.ledgers import sqlite_ledger

ROOT = Path(__file__).parents[2]
DONE = {"mail": ["o-1: delivered to the door, receipt-o-1"], "parcels": ["o-1"], "payments": ["o-1: 1999 cents"]}
POINTS = [
    *(f"step.{when}:{number}" for number in (1, 2, 3) for when in ("before_commit", "after_commit")),
    *("suspend.before_commit", "suspend.after_commit"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        address: str = request.getfixturevalue("postgres_ledger")
        return address
    return sqlite_ledger(tmp_path)


@contextmanager
def worker(url: str, services: Path, crash_at: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "ORDERS_LEDGER": url, "ORDERS_SERVICES": str(services), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    if crash_at is not None:
        environment["REDRIVE_CRASH_AT"] = f"{crash_at}:kill"
    process = subprocess.Popen([sys.executable, "-m", "examples.orders", "work"], env=environment, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.req("Q-8")
@pytest.mark.parametrize("point", POINTS)
def test_each_effect_happens_once(url: str, tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERS_LEDGER", url)
    from redrive import App

    services = tmp_path / "services"
    with open_ledger(url) as ledger, App(ledger) as app:
        job_id = submit(ledger)
        sends_early = point.startswith("step") and point.endswith(":3")
        if sends_early:
            app.signal("shop:ann:o-1:place:v1", "delivered", {"to": "the door"})
        with worker(url, services, point) as killed:
            assert killed.wait(60) == -9
        with worker(url, services):
            if not sends_early:
                wait_until(lambda: (job := ledger.get(job_id)) is not None and job.waits_for == "delivered")
                app.signal("shop:ann:o-1:place:v1", "delivered", {"to": "the door"})
            wait_until(lambda: (job := ledger.get(job_id)) is not None and job.state == "done")
    assert effects(services) == DONE
    calls = {path.parent.name: len(path.read_text().splitlines()) for path in services.glob("*/calls.log")}
    repeated = "before_commit" in point and point.startswith("step")
    assert sum(calls.values()) == 3 + repeated, "a finished step is not called again"


def submit(ledger: Ledger) -> int:
    from examples.orders.app import app, place

    bound = place.bind("o-1", "ann", 1999)
    app.close()
    return ledger.submit(bound.job).id
