"""Faults around Temporal: killed workers, and a server that is offline, killed or misconfigured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive import App, RetryPolicy, Temporal, errors
from redrive.ledger.failpoint import STATUS, VARIABLE
from tests.servers.process import free_port, running, short_folder
from tests.servers.temporal import answers, command, program

SOON = 60.0
ROOT = Path(__file__).parents[3]
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.02, backoff_max=0.05, jitter=0)


class Program:
    """The program in `program.py`, in other processes and in this one."""

    def __init__(self, url: str, address: str, folder: Path) -> None:
        self.diary = folder / "diary.txt"
        self.queue = f"test-{uuid.uuid4().hex[:12]}"
        self.app = App(url, engine=Temporal(address, task_queue=self.queue, heartbeat=1))
        self._environment = os.environ | {
            "PROGRAM_LEDGER": url,
            "PROGRAM_TEMPORAL": address,
            "PROGRAM_QUEUE": self.queue,
            "PROGRAM_DIARY": str(self.diary),
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        }

    @contextmanager
    def worker(self, crash_at: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A worker process, killed at the end."""
        environment = self._environment | ({VARIABLE: crash_at} if crash_at else {})
        child = subprocess.Popen(
            [sys.executable, "-m", "redrive", "work", "tests.acceptance.temporal.program:app"],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        try:
            yield child
        finally:
            child.kill()
            child.wait()

    def lines(self) -> Counter[str]:
        return Counter(self.diary.read_text().split("\n")[:-1]) if self.diary.exists() else Counter()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def crew(url: str, temporal_address: str, tmp_path: Path) -> Iterator[Program]:
    made = Program(url, temporal_address, tmp_path)
    with made.app:
        yield made


@pytest.mark.req("E-9")
def test_a_worker_killed_after_the_handover_leaves_one_activity(crew: Program) -> None:
    @crew.app.command("parcels.pack", key="shop:{user}:{number}:pack:v1", retry=QUICK)
    def pack(number: int, user: str) -> int:
        raise AssertionError("not here")

    with crew.app.ledger.begin() as tx:
        job = pack.using(tx=tx).submit(1, "ann")
    with crew.worker("temporal.started") as killed:
        assert killed.wait(SOON) == STATUS
    with crew.worker():
        assert job.result(SOON) == 2
    assert crew.lines() == {"pack 1": 1}


@pytest.mark.req("E-9")
def test_a_worker_killed_between_dead_letter_and_report_leaves_one_dead_letter(crew: Program) -> None:
    @crew.app.command("parcels.lose", key="shop:{user}:1:lose:v1", retry=QUICK)
    def lose(user: str) -> None:
        raise AssertionError("not here")

    job = lose.submit("ann")
    with crew.worker("temporal.recorded") as killed:
        assert killed.wait(SOON) == STATUS
    (letter,) = crew.app.ledger.dead_letters()
    assert (letter.reason, letter.attempts) == ("stopped", 1)
    with crew.worker():
        with pytest.raises(errors.Dead, match="stopped: Stop: it is lost"):
            job.result(SOON)
        temporal = crew.app.registrations.temporal
        assert temporal is not None
        until(lambda: (view := temporal.read(job.id, job.kind, "unknown")) is not None and view.state == "dead")
    assert crew.lines() == {"lose": 1}, "the function did not run again"
    assert len(crew.app.ledger.dead_letters(status=None)) == 1


@pytest.mark.req("E-9")
def test_a_worker_killed_between_function_and_report_costs_one_attempt(crew: Program) -> None:
    @crew.app.command("parcels.pack", key="shop:{user}:{number}:pack:v1", retry=QUICK)
    def pack(number: int, user: str) -> int:
        raise AssertionError("not here")

    job = pack.submit(7, "ann")
    with crew.worker("worker.ran:1:kill") as killed:
        assert killed.wait(SOON) == -signal.SIGKILL
    with crew.worker():
        assert job.result(SOON) == 14
    assert (job.attempts, crew.lines()) == (2, {"pack 7": 2})


@pytest.mark.req("E-9")
def test_an_offline_server_is_reported_in_one_line_and_the_outbox_keeps_its_jobs(url: str, tmp_path: Path) -> None:
    found, port = program(), free_port()
    assert found is not None
    with App(url, engine=Temporal(f"127.0.0.1:{port}", task_queue="away", heartbeat=2)) as app:

        @app.command("parcels.pack", key="shop:{user}:{number}:pack:v1", retry=QUICK)
        def pack(number: int, user: str) -> int:
            return number * 2

        says = f"Temporal at 127.0.0.1:{port} cannot be reached .*; nothing was submitted; start the server"
        with pytest.raises(errors.EngineUnavailable, match=says) as refused:
            pack.submit(1, "ann")
        assert "\n" not in str(refused.value)
        with app.ledger.begin() as tx:
            job = pack.using(tx=tx).submit(2, "ann")
        with app.worker() as worker:
            until(lambda: worker.status.failing)
            until(lambda: (row := app.ledger.get(int(job.id))) and (row.state, row.reason) == ("ready", "again"))
            row = app.ledger.get(int(job.id))
            assert row is not None
            assert row.attempts == 0, "that costs it no attempt"
            with short_folder() as folder, running(lambda port: command(found, port), ready=answers, folder=folder, port=port):
                assert job.result(SOON) == 4


@pytest.mark.req("E-9")
def test_a_server_killed_and_restarted_under_load_loses_nothing(url: str, tmp_path: Path) -> None:
    found, port, file = program(), free_port(), str(tmp_path / "temporal.db")
    assert found is not None
    ran: Counter[int] = Counter()
    engine = Temporal(f"127.0.0.1:{port}", task_queue="killed", heartbeat=2)

    @contextmanager
    def server() -> Iterator[None]:
        start = lambda port: command(found, port, "--db-filename", file)  # noqa: E731
        with short_folder() as folder, running(start, ready=answers, folder=folder, port=port, patience=0):
            yield

    with App(url, engine=engine) as app:

        @app.command("parcels.pack", key="shop:{user}:{number}:pack:v1", retry=QUICK)
        def pack(number: int, user: str) -> int:
            ran[number] += 1
            time.sleep(0.02)
            return number * 2

        with app.worker():
            with server():
                jobs = [pack.submit(number, "ann") for number in range(60)]
                until(lambda: len(ran) > 10)
            with server():
                assert [job.result(SOON) for job in jobs] == [number * 2 for number in range(60)]
    assert sorted(ran) == list(range(60))


@pytest.mark.req("E-9")
def test_a_missing_namespace_is_one_line(url: str, temporal_address: str) -> None:
    with App(url, engine=Temporal(temporal_address, namespace="nowhere")) as app:

        @app.command("parcels.pack")
        def pack() -> None: ...

        says = "no namespace 'nowhere'; nothing was submitted; create it: temporal operator namespace create -n nowhere"
        with pytest.raises(errors.EngineError, match=says):
            pack.submit()
