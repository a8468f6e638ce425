"""Jobs in processes: crashes, limits and cancels cost one job, on SQLite and Postgres.

Tests of the process alone use SQLite only, because starting a process takes half a second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.ledger import Job, Ledger
from redrive.ledger.store.steps import ProgressReport
from redrive.worker import maintenance
from redrive.worker.processes.process import ChildProcess
from redrive.worker.worker import Worker
from tests.acceptance.crash.diary import read
from tests.acceptance.worker import isolated

from .test_progress import progress
from .world import record_log, until, wait_for_jobs

pytestmark = [pytest.mark.req("Q-9"), pytest.mark.skipif(os.name != "posix", reason="needs fork")]


@contextmanager
def working(ledger: Ledger, processes: int = 2, drain: float = 5.0) -> Iterator[Worker]:
    with Worker(ledger, isolated.app.kinds(), processes=processes, drain=drain, threads=1) as worker:
        yield worker


def submit(ledger: Ledger, command: Any, *arguments: Any) -> int:
    return ledger.submit(command.bind(*arguments).job).id


def run(ledger: Ledger, command: Any, *arguments: Any) -> Job:
    job_id = submit(ledger, command, *arguments)
    with working(ledger):
        (job,) = wait_for_jobs(ledger, job_id)
    return job


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def attempts_of(ledger: Ledger, job: Job) -> list[str]:
    return [f"{attempt.reason}: {attempt.error}" for attempt in ledger.attempts(job.id)]


def test_a_process_returns_results_and_is_reused(shared: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    ids = [submit(shared, isolated.work, str(diary), number) for number in range(20)]
    with working(shared) as worker:
        jobs = wait_for_jobs(shared, *ids)
        assert worker.processes == 2
    assert [job.result for job in jobs] == [str(number).encode() for number in range(20)]
    pids = {line[1] for line in read(diary)}
    assert len(pids) <= 2
    assert str(os.getpid()) not in pids
    until(lambda: all(has_ended(int(pid)) for pid in pids), "no process outlives its worker")


def test_current_describes_the_attempt_in_a_process(on_sqlite: Ledger) -> None:
    job = run(on_sqlite, isolated.describe, 7)
    assert job.result is not None
    assert b'"operation":"isolated.describe"' in job.result.replace(b" ", b"")
    assert b'"number":"1"' in job.result.replace(b" ", b"")


CRASHES = {
    isolated.segfault: "the process of the job was killed by SIGSEGV",
    isolated.leave: "the process of the job exited with status 0",
    isolated.kill: "the process of the job was killed by SIGKILL, by an operator or because the system ran out of memory",
}


def test_a_crash_costs_one_job_and_the_third_one_is_the_last(shared: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    neighbours = [submit(shared, isolated.work, str(diary), number) for number in range(20)]
    poison = {submit(shared, command, str(diary)): says for command, says in CRASHES.items()}
    with working(shared, processes=4) as worker:
        jobs = wait_for_jobs(shared, *poison, *neighbours)
        assert worker.status.state == "working"
    dead, done = jobs[: len(poison)], jobs[len(poison) :]
    assert [(job.state, job.attempts, job.crashes) for job in done] == [("done", 1, 0)] * 20
    assert {(letter.reason, letter.attempts) for letter in shared.dead_letters()} == {("crashed_process", 3)}
    for job in dead:
        says = poison[job.id]
        assert (job.state, job.reason, job.attempts, job.crashes) == ("dead", "crashed_process", 3, 3)
        assert job.error == f"{says} (crash 3)"
        assert attempts_of(shared, job)[:2] == [f"crashed_process: {says} (crash {number})" for number in (1, 2)]


@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit needs Linux")
def test_a_job_above_its_memory_limit_fails_with_a_clear_error(on_sqlite: Ledger, tmp_path: Path) -> None:
    job = run(on_sqlite, isolated.eat_memory, str(tmp_path / "diary"))
    assert (job.state, job.reason, job.attempts, job.crashes) == ("dead", "attempts", 2, 0)
    assert job.error is not None
    assert job.error.startswith("MemoryLimitExceeded: isolated.memory: attempt 2 exceeded its memory limit of 300 MB; raise ")
    assert "isolated.py" in job.error, "the frame of the function"


def test_jobs_that_take_too_long_are_killed(shared: Ledger, tmp_path: Path) -> None:
    commands, diary = (isolated.loop, isolated.ignore_sigterm), tmp_path / "diary"
    ids = [submit(shared, command, str(diary)) for command in commands]
    with working(shared):
        jobs = wait_for_jobs(shared, *ids)
    for command, job in zip(commands, jobs, strict=True):
        assert (job.state, job.reason, job.attempts, job.crashes) == ("dead", "attempts", 2, 0)
        assert job.error is not None
        assert job.error.startswith(f"AttemptTimeout: {command.name}: attempt 2 took longer than 0.5 s; its process was killed")
    assert all(has_ended(int(line[1])) for line in read(diary))


def test_finally_blocks_run_before_a_process_is_killed(on_sqlite: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    run(on_sqlite, isolated.tidy, str(diary))
    assert [line[0] for line in read(diary)] == ["tidy", "cleaned"] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="sessions are read from /proc")
def test_children_of_a_killed_job_are_killed(on_sqlite: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    job = run(on_sqlite, isolated.fork_often, str(diary))
    assert (job.state, job.reason) == ("dead", "attempts")
    pids = [int(line[1]) for line in read(diary) if line[0] == "child"]
    assert len(pids) >= 4
    until(lambda: all(map(has_ended, pids)), [pid for pid in pids if not has_ended(pid)])


def test_a_function_that_forks_and_returns_twice_has_one_result(on_sqlite: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    jobs = [submit(on_sqlite, isolated.return_twice, str(diary)) for _ in range(3)]
    with working(on_sqlite, processes=1):
        done = wait_for_jobs(on_sqlite, *jobs)
    assert [(job.state, job.attempts) for job in done] == [("done", 1)] * 3
    assert all(job.result not in (None, b"0") for job in done), "the result is the parent's"


def test_an_error_keeps_its_text_frames_and_signature(on_sqlite: Ledger) -> None:
    with record_log() as records:
        job = run(on_sqlite, isolated.refuse, "no such order")
    assert job.error is not None
    assert job.error.splitlines()[0] == "tests.acceptance.worker.isolated.ValueErrorOfOurs: no such order"
    assert "isolated.py" in job.error
    assert "in refuse" in job.error
    (letter,) = on_sqlite.dead_letters()
    assert letter.signature == "ValueErrorOfOurs: no such order"
    failed = [record for record in records if record.kind in ("retry", "giveup")]
    assert {record.fields["error_class"] for record in failed} == {"ValueErrorOfOurs"}
    assert len(failed) == 5


def test_errors_are_classified_by_the_policy_of_the_command(on_sqlite: Ledger) -> None:
    job = run(on_sqlite, isolated.select_errors, 3)
    assert (job.state, job.reason, job.attempts) == ("dead", "not_retryable", 2)
    assert attempts_of(on_sqlite, job)[0].startswith("failed: ConnectionError: no answer for 3")


def test_again_is_a_retry_and_not_a_failure(on_sqlite: Ledger) -> None:
    job = run(on_sqlite, isolated.ask_again, 5)
    assert (job.state, job.attempts, job.result) == ("done", 2, b"5")


def test_a_drain_kills_processes_and_releases_their_jobs(shared: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    job_id = submit(shared, isolated.long, str(diary), 600)
    with working(shared, drain=0.1):
        until(lambda: any(line[0] == "child" for line in read(diary)), "it runs")
    job = shared.get(job_id)
    assert job is not None
    assert (job.state, job.reason, job.attempts, job.crashes) == ("ready", "released", 0, 0)
    assert "ended" not in [line[0] for line in read(diary)]
    until(lambda: all(has_ended(int(line[1])) for line in read(diary)), "no process outlives its worker")


def test_a_process_that_was_killed_while_idle_is_replaced(on_sqlite: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    with working(on_sqlite, processes=1):
        wait_for_jobs(on_sqlite, submit(on_sqlite, isolated.work, str(diary), 1))
        pid = int(read(diary)[0][1])
        os.kill(pid, signal.SIGKILL)
        until(lambda: has_ended(pid), "it is killed")
        (job,) = wait_for_jobs(on_sqlite, submit(on_sqlite, isolated.work, str(diary), 2))
    assert (job.state, job.attempts, job.crashes) == ("done", 1, 0), attempts_of(on_sqlite, job)


def test_a_job_with_a_distant_deadline_runs(on_sqlite: Ledger, tmp_path: Path) -> None:
    new = isolated.work.bind(str(tmp_path / "diary"), 1).job
    deadline = on_sqlite.now() + timedelta(days=30)  # more milliseconds than the system's poll takes
    job_id = on_sqlite.submit(new._replace(deadline=deadline)).id
    with working(on_sqlite):
        (job,) = wait_for_jobs(on_sqlite, job_id)
    assert (job.state, job.attempts) == ("done", 1), attempts_of(on_sqlite, job)


def test_no_job_gets_the_reply_of_another(on_sqlite: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, calls = ChildProcess.receive, []

    def fail_once(self: ChildProcess, until: float, wake: int, /) -> Any:
        calls.append(self.pid)
        if len(calls) == 2:  # after the process is ready: the reply of the first attempt stays unread
            raise OSError("no descriptor is free")
        return receive(self, until, wake)

    monkeypatch.setattr(ChildProcess, "receive", fail_once)
    diary = str(tmp_path / "diary")
    with working(on_sqlite, processes=1):
        jobs = [
            *wait_for_jobs(on_sqlite, submit(on_sqlite, isolated.work, diary, 1)),
            *wait_for_jobs(on_sqlite, submit(on_sqlite, isolated.work, diary, 2)),
        ]
        assert has_ended(calls[0])
    assert [(job.state, job.attempts) for job in jobs] == [("done", 2), ("done", 1)]
    assert jobs[1].result != jobs[0].result


@pytest.mark.req("Q-2")
def test_a_cancelled_job_is_killed(shared: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    job_id = submit(shared, isolated.long, str(diary), 600)
    with working(shared):
        until(lambda: any(line[0] == "child" for line in read(diary)), "it runs")
        shared.control.cancel([job_id], actor="ann", because="not needed")
        until(lambda: (job := shared.get(job_id)) is not None and job.state == "cancelled", "it is cancelled")
        assert all(has_ended(int(line[1])) for line in read(diary))


@pytest.mark.req("Q-8")
def test_steps_in_a_process_are_not_repeated(shared: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    job = run(shared, isolated.crash_between_steps, str(diary))
    assert (job.state, job.attempts, job.crashes, job.result) == ("done", 2, 1, b"[1,2]")
    assert [line[0] for line in read(diary)] == ["charge", "ship"]


@pytest.mark.req("Q-8")
def test_a_job_in_a_process_sleeps_without_it(shared: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    job = run(shared, isolated.sleep, str(diary))
    assert (job.state, job.attempts, job.result) == ("done", 1, b'"awake"')
    assert [line[0] for line in read(diary)] == ["slept", "slept"]


@pytest.mark.req("Q-8")
def test_a_job_in_a_process_waits_for_a_signal_without_it(shared: Ledger, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    job_id = submit(shared, isolated.wait, str(diary), 7)
    with working(shared, processes=1):
        until(lambda: (job := shared.get(job_id)) is not None and job.waits_for == "approved", "it waits")
        wait_for_jobs(shared, submit(shared, isolated.work, str(diary), 1))  # the process is free
        assert App(shared).signal("shop:ann:7:wait:v1", "approved", {"by": "ann"}).stored
        (job,) = wait_for_jobs(shared, job_id)
    assert (job.state, job.attempts, job.result) == ("done", 1, b'"ann"')
    assert [line[0] for line in read(diary)] == ["charge", "waits", "work", "waits"], "the step is not repeated"


@pytest.mark.req("Q-10")
def test_progress_and_checkpoints_of_a_process_are_stored(shared: Ledger, tmp_path: Path) -> None:
    diary, gate = tmp_path / "diary", tmp_path / "gate"
    job_id = submit(shared, isolated.report, str(diary), str(gate))
    with working(shared, processes=1):
        until(lambda: (row := progress(shared, job_id)) is not None and row.part == 0.4, "it is shown while the job runs")
        row = progress(shared, job_id)
        assert row is not None
        assert row.note == "page 12 of 30"
        gate.touch()
        (job,) = wait_for_jobs(shared, job_id)
    assert (job.state, job.attempts, job.crashes, job.result) == ("done", 2, 1, b"12")
    assert [line[0] for line in read(diary)] == ["from-0", "from-12"]


@pytest.mark.req("Q-10")
def test_progress_of_a_process_costs_no_write(on_sqlite: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[ProgressReport] = []
    monkeypatch.setattr(maintenance, "write_progress", lambda _session, reports: written.extend(reports))
    job_id = submit(on_sqlite, isolated.report_pages, 500)
    with working(on_sqlite, processes=1):
        (job,) = wait_for_jobs(on_sqlite, job_id)
        until(lambda: bool(written) and written[-1].part == 1.0, "the worker has the last report")
    assert (job.state, job.attempts) == ("done", 1), attempts_of(on_sqlite, job)
    assert written[-1].note == "page 500"
    assert progress(on_sqlite, job_id) is None, "the process has written nothing"


def test_a_job_that_reports_progress_without_a_pause_is_killed(on_sqlite: Ledger) -> None:
    late = submit(on_sqlite, isolated.report_pages, -1)
    with working(on_sqlite, processes=2):
        (job,) = wait_for_jobs(on_sqlite, late)
    assert (job.state, job.attempts) == ("dead", 2)
    assert "its process was killed" in (job.error or "")


SCRIPT = """
import sys
from redrive import App
app = App("sqlite:///{folder}/ledger.db")

@app.command("script.double", isolation="process")
def double(number: int) -> int:
    return 2 * number

if __name__ == "__main__":
    with app.worker(processes=1):
        print(double.submit(21).result(timeout=60))
"""


def test_commands_of_a_script_run_in_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=tmp_path))
    finished = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert finished.stdout == "42\n", finished.stderr


UNGUARDED = """
from redrive import App
app = App("sqlite:///{folder}/ledger.db", migrate=True)

@app.command("script.double", isolation="process")
def double(number: int) -> int:
    return 2 * number

with app.worker(processes=1):
    double.submit(21).result(60)
"""


def test_a_script_that_starts_a_worker_on_import_names_the_fix(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(folder=tmp_path))
    finished = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 1
    assert "script.double: its module starts a worker when it is imported" in finished.stderr
    assert '`if __name__ == "__main__":`' in finished.stderr
    assert "__redrive_main__" not in finished.stderr


def test_a_killed_worker_leaves_no_processes(tmp_path: Path) -> None:
    script, diary = tmp_path / "script.py", tmp_path / "diary"
    script.write_text(
        "import redrive.ledger as ledgers, time\n"
        "from redrive.worker.worker import Worker\n"
        "from tests.acceptance.worker import isolated\n"
        f"with ledgers.open_ledger('sqlite:///{tmp_path}/ledger.db', migrate=True) as ledger:\n"
        f"    ledger.submit(isolated.long.bind({str(diary)!r}, 600.0).job)\n"
        "    with Worker(ledger, isolated.app.kinds(), processes=1):\n"
        "        time.sleep(600)\n"
    )
    root = str(Path(__file__).parents[3])
    worker = subprocess.Popen([sys.executable, str(script)], cwd=root, env=os.environ | {"PYTHONPATH": root})
    until(lambda: any(line[0] == "child" for line in read(diary)), "it runs")
    pids = [int(line[1]) for line in read(diary)]
    assert not any(map(has_ended, pids))
    worker.kill()
    worker.wait()
    until(lambda: all(map(has_ended, pids)), "its processes end")


def test_threads_of_the_pool_start_with_the_first_job(on_sqlite: Ledger, tmp_path: Path) -> None:
    with working(on_sqlite, processes=4) as worker:
        names = {thread.name for thread in threading.enumerate() if f"{worker.name}-process" in thread.name}
        assert names == set()
        wait_for_jobs(on_sqlite, submit(on_sqlite, isolated.work, str(tmp_path / "diary"), 1))
        time.sleep(0)
        names = {thread.name for thread in threading.enumerate() if f"{worker.name}-process" in thread.name}
        assert len(names) == 1
