"""Faults around Temporal: killed workers, and a server that is offline, killed or misconfigured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import TLSConfig

from redrive import App, RetryPolicy, Temporal, current, errors, journal
from redrive.ledger import mirrors
from redrive.ledger.failpoint import STATUS, VARIABLE
from redrive.ledger.jobs.lease_recovery import MAX_CRASHES
from redrive.temporal import completion
from redrive.temporal.runner import TemporalRunner
from tests.servers.certificate import self_signed
from tests.servers.process import free_port, running, short_folder
from tests.servers.temporal import answers, command, program
from tests.servers.tls import TlsDoor

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

        says = "no namespace 'nowhere'; {}; create it: temporal operator namespace create -n nowhere"
        with pytest.raises(errors.EngineError, match=says.format("nothing was submitted")):
            pack.submit()
        with app.worker() as worker:
            until(lambda: "temporal" in worker.status.failing)
            assert says.format("nothing was changed") in worker.status.failing["temporal"]


@pytest.mark.req("E-9")
def test_a_worker_stops_quietly_while_the_server_is_away(url: str) -> None:
    records: list[Any] = []
    unsubscribe = journal.subscribe(records.append, inline=True)
    try:
        with App(url, engine=Temporal(f"127.0.0.1:{free_port()}")) as app:

            @app.command("parcels.pack")
            def pack() -> None: ...

            with app.worker() as worker:
                until(lambda: "temporal" in worker.status.failing)
                failures = len(records)
    finally:
        unsubscribe()
    assert len(records) <= failures + 5, "stopping does not fail again and again"


@pytest.mark.req("E-9")
def test_tls_with_an_own_authority_and_a_client_certificate(url: str, temporal_address: str, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    port, pem = int(temporal_address.rpartition(":")[2]), certificate.read_bytes()
    with closing(TlsDoor(port, certificate, asks=True)) as door, closing(TlsDoor(port, certificate)) as easy:

        def submit(port: int, tls: bool | TLSConfig) -> int:
            with App(url, engine=Temporal(f"localhost:{port}", task_queue="tls", tls=tls)) as app:

                @app.command("parcels.pack")
                def pack() -> int:
                    return 7

                with app.worker():
                    return pack.submit().result(SOON)

        ours = TLSConfig(server_root_ca_cert=pem, client_cert=pem, client_private_key=pem)
        assert submit(door.port, ours) == 7
        cases: list[tuple[int, bool | TLSConfig, str]] = [
            (easy.port, True, "unknown certificate authority.*pass TLSConfig"),
            (easy.port, False, "closed the connection.*check tls="),
            (door.port, TLSConfig(server_root_ca_cert=pem), "(needs a client certificate|closed the connection)"),
            (port, True, "does not use TLS.*remove tls="),
        ]
        for target, tls, says in cases:
            with pytest.raises(errors.EngineUnavailable, match=f"cannot be reached .*{says}"):
                submit(target, tls)


@pytest.mark.req("E-9")
def test_an_attempt_that_overlaps_with_a_lost_one_keeps_its_result(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def beat_never(*_: object) -> None: ...

    monkeypatch.setattr(TemporalRunner, "_beat", beat_never)
    second = threading.Event()

    @app.command("parcels.carry", key="shop:{user}:1:carry:v1", retry=QUICK)
    def carry(user: str) -> int:
        if current().number == 1:
            assert second.wait(SOON)  # the server gives it up, and starts the second attempt
        second.set()
        return current().number

    with app.worker():
        assert carry.submit("ann").result(SOON) == 2


@pytest.mark.req("E-9")
def test_a_ledger_that_is_away_after_a_killed_worker_costs_no_attempt(crew: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    outage = iter(range(MAX_CRASHES + 1))
    read = mirrors.recorded_runs

    def recorded_runs(*args: Any) -> set[str]:
        if next(outage, None) is not None:
            raise errors.LedgerUnavailable("away")
        return read(*args)

    @crew.app.command("parcels.carry", key="shop:{user}:1:carry:v1", retry=QUICK)
    def carry(user: str) -> int:
        return current().number

    job = carry.submit("ann")
    with crew.worker():
        until(crew.lines)
    monkeypatch.setattr(mirrors, "recorded_runs", recorded_runs)
    monkeypatch.setattr(completion, "UNREAD_SECONDS", 0.01)
    with crew.app.worker():
        assert job.result(SOON) == 2
    assert next(outage, None) is None, "it was away"


@pytest.mark.req("E-9")
@pytest.mark.parametrize("end", [1, 2])
def test_a_worker_killed_at_an_end_of_a_handed_over_job_leaves_one_result(crew: Program, end: int) -> None:
    """The first end is that of the activity's function, the second one that of the job in the ledger."""

    @crew.app.command("parcels.pack", key="shop:{user}:{number}:pack:v1", retry=QUICK)
    def pack(number: int, user: str) -> int:
        raise AssertionError("not here")

    with crew.app.ledger.begin() as tx:
        job = pack.using(tx=tx).submit(3, "ann")
    with crew.worker(f"worker.ran:{end}:kill") as killed:
        assert killed.wait(SOON) == -signal.SIGKILL
    with crew.worker():
        assert job.result(SOON) == 6
    assert crew.app.ledger.dead_letters(status=None) == []
    assert crew.lines()["pack 3"] <= 2
