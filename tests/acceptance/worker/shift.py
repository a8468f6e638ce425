"""Worker processes on one ledger that are killed, suspended and drained, and the outcome of their jobs."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from redrive.commands.command import Command
from redrive.ledger import NewJob, open_ledger
from tests.acceptance.crash.diary import read
from tests.acceptance.crash.oracle import fresh, rows
from tests.acceptance.crash.still import still
from tests.zygote import Zygote

from . import isolated
from .program import FREE

PROGRAM = "tests.acceptance.worker.program"
PATIENCE = 60.0
DONE, DEAD = 2, 3


class Shift:
    """Workers on one ledger: named, started, and their diaries read."""

    def __init__(self, zygote: Zygote, url: str, folder: Path) -> None:
        self.zygote, self.url = zygote, url
        self.diary, self.output = folder / "diary", folder / "output"
        self.hired = 0
        fresh(url)

    def submit(self, kind: str, *keys: str, count: int = 0) -> None:
        """Submit jobs of a type."""
        with open_ledger(self.url) as ledger:
            ledger.submit_many([NewJob(kind, key) for key in (*keys, *(f"k{n:03}" for n in range(count)))])

    def hire(self, *options: str, crash_at: str = "") -> int:
        """Start another worker and return its process id."""
        self.hired += 1
        arguments = [self.url, str(self.diary), f"worker{self.hired}", *options]
        return self.zygote.fork(PROGRAM, arguments, output=self.output, crash_at=crash_at)

    def effects(self, kind: str) -> Counter[str]:
        """Return how often the job of each key was done."""
        return Counter(line[2] for line in read(self.diary) if line[:2] == ["effect", kind])

    def begun(self, kind: str) -> Counter[str]:
        """Return how often the job of each key was started."""
        return Counter(line[2] for line in read(self.diary) if line[:2] == ["begin", kind])

    def left(self, kind: str, worker: str) -> int:
        """Return the number of jobs that a worker has started and not finished."""
        noted = Counter(line[0] for line in read(self.diary) if line[1:2] == [kind] and line[3:4] == [worker])
        return noted["begin"] - noted["effect"]

    def until(self, met: Callable[[], bool], what: str, seconds: float = PATIENCE) -> float:
        """Wait for a condition and return the duration."""
        began = time.monotonic()
        while not met():
            assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}\n{self.story()}"
            time.sleep(0.01)
        return time.monotonic() - began

    def settled(self, count: int) -> bool:
        """Return whether this number of jobs has ended."""
        found = rows(self.url, "SELECT count(*) FROM redrive_job WHERE state IN (2, 3)")
        return bool(found[0][0] >= count)

    def states(self) -> Counter[int]:
        """Return the number of jobs in each stored state."""
        return Counter(dict(rows(self.url, "SELECT state, count(*) FROM redrive_job GROUP BY state")))

    def wait(self, pid: int, seconds: float = PATIENCE) -> int:
        """Wait until the process has ended, and return its status. One that does not end prints its stack."""
        began = time.monotonic()
        while (status := self.zygote.ended(pid)) is None:
            if time.monotonic() - began > seconds:
                os.kill(pid, signal.SIGUSR1)
                time.sleep(0.3)
                os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"it does not end: {dict(self.states())}\n{self.story()}")
            time.sleep(0.01)
        return status

    def end(self, pid: int) -> None:
        """Send SIGTERM and wait."""
        os.kill(pid, signal.SIGTERM)
        assert self.wait(pid) == 0, self.story()

    def story(self) -> str:
        """Return their last output."""
        return self.output.read_text()[-6000:] if self.output.exists() else "nobody said anything"

    def balanced(self) -> None:
        """Check that the counts balance (L-8)."""
        with open_ledger(self.url) as ledger:
            assert ledger.imbalance() == []


class Killed(NamedTuple):
    """The outcome of jobs whose workers were killed."""

    jobs: int
    finished: int
    lost: int
    twice: int
    """Jobs that the killed worker finished and did not settle."""
    seconds: float
    """Seconds from the start of the new worker until all jobs had ended."""


def kill_workers(shift: Shift, *options: str, jobs: int = 200, after: int = 60) -> Killed:
    """Kill all workers during jobs of 20 ms, and start a new one immediately."""
    shift.submit("work", count=jobs)
    first = shift.hire(*options)
    shift.until(lambda: shift.effects("work").total() >= after, "the first worker is at work")
    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    second = shift.hire(*options)
    shift.until(lambda: shift.settled(jobs), "a fresh worker finishes")
    seconds = time.monotonic() - began
    shift.end(second)
    shift.zygote.wait(first)
    states, effects = shift.states(), shift.effects("work")
    shift.balanced()
    return Killed(jobs, states[DONE], jobs - len(effects), sum(many - 1 for many in effects.values()), seconds)


SLOTS = 8
"""Threads of a worker, by default."""


class Poisoned(NamedTuple):
    """The outcome of jobs of which one kills its worker."""

    jobs: int
    finished: int
    kills: int
    reason: str
    charged: int
    """Healthy jobs that were charged a crash before their function began. At most those of the slots: a start is durable
    before its thread runs, and the poison may kill the process between the two."""
    seconds: float


def run_poison(shift: Shift, *options: str, healthy: int = 59) -> Poisoned:
    """One of the jobs kills its worker. Another worker starts after each crash."""
    keys = [f"k{n:03}" for n in range(healthy)]
    keys.insert(healthy // 3, "poison")
    shift.submit("work", *keys)
    began = time.monotonic()
    kills = 0
    while True:
        status = shift.wait(shift.hire(*options, "until=idle"))
        if status == 0:
            break
        assert status == -signal.SIGKILL, shift.story()
        kills += 1
        assert kills < 10, "it kills and kills"
    seconds = time.monotonic() - began
    found = rows(shift.url, "SELECT reason FROM redrive_dead")
    begun = shift.begun("work")
    lost = rows(shift.url, "SELECT key, count(*) FROM redrive_attempt JOIN redrive_job ON id = job_id GROUP BY key")
    charged = sum(many > begun[key] for key, many in lost)
    shift.balanced()
    return Poisoned(healthy + 1, shift.states()[DONE], kills, ", ".join(row[0] for row in found), charged, seconds)


class Isolated(NamedTuple):
    """The outcome of jobs in processes of which one is poison."""

    finished: int
    reason: str
    attempts: int
    workers: int
    """Number of workers that were needed."""
    charged: int
    """Attempts and crashes of healthy jobs beyond the first attempt."""
    left: int
    """Processes of the poison that outlive the worker."""
    seconds: float


def isolate(shift: Shift, command: Command[..., object], *, healthy: int = 59) -> Isolated:
    """One of the jobs in processes is poison. Its worker runs until all have ended."""
    diary = shift.diary.with_name("isolated")
    jobs = [isolated.work.bind(str(diary), number).job for number in range(healthy)]
    jobs.insert(healthy // 3, command.bind(str(diary)).job)
    with open_ledger(shift.url) as ledger:
        ledger.submit_many(jobs)
    began = time.monotonic()
    assert shift.wait(shift.hire("isolated", "until=idle")) == 0, shift.story()
    seconds = time.monotonic() - began
    ((reason, attempts),) = rows(shift.url, "SELECT reason, attempts FROM redrive_dead")
    charged = rows(
        shift.url, "SELECT coalesce(sum(attempts - 1 + crashes), 0) FROM redrive_job WHERE kind = 'isolated.work' AND state = 2"
    )[0][0]
    pids = {int(line[1]) for line in read(diary) if line[0] != "work"}
    shift.balanced()
    left = sum(not has_ended(pid) for pid in pids)
    return Isolated(shift.states()[DONE], reason, attempts, shift.hired, int(charged), left, seconds)


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that its parent has not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Stopped(NamedTuple):
    """The outcome of jobs whose worker was suspended for longer than its leases, and then resumed."""

    jobs: int
    finished: int
    crashes: int
    twice: int
    late: int


def suspend_worker(shift: Shift, *options: str, jobs: int = 200) -> Stopped:
    """SIGSTOP during jobs, beyond all leases. Another worker finishes them. Then SIGCONT."""
    shift.submit("gated", count=jobs)
    first = shift.hire("lease=1", *options)
    shift.until(
        lambda: shift.begun("gated").total() > shift.effects("gated").total() >= FREE, "the first worker is in the middle"
    )
    still(first, shift.url)
    shift.diary.with_name("gate").touch()
    second = shift.hire("lease=1", *options)
    shift.until(lambda: shift.settled(jobs), "the other worker finishes")
    os.kill(first, signal.SIGCONT)
    shift.until(lambda: shift.left("gated", "worker1") == 0, "the first worker goes on with what it had begun")
    shift.end(first)
    shift.end(second)
    with open_ledger(shift.url) as ledger:
        late = sum(tally.late for tally in ledger.counts().values())
    crashes = rows(shift.url, "SELECT coalesce(sum(crashes), 0) FROM redrive_job")[0][0]
    effects = shift.effects("gated")
    shift.balanced()
    return Stopped(jobs, shift.states()[DONE], int(crashes), sum(many - 1 for many in effects.values()), late)


class Drained(NamedTuple):
    """The outcome of jobs whose worker was stopped while they ran."""

    jobs: int
    finished: int
    released: int
    charged: int
    seconds: float


def drain_worker(shift: Shift, *options: str, jobs: int = 8, drain: float = 0.5) -> Drained:
    """SIGTERM during long jobs, of which half are sync."""
    shift.submit("long", count=jobs)
    shift.submit("long-task", count=jobs)
    first = shift.hire(f"drain={drain}", *options)
    shift.until(lambda: shift.begun("long").total() == jobs and shift.begun("long-task").total() == jobs, "all are begun")
    began = time.monotonic()
    shift.end(first)
    seconds = time.monotonic() - began
    ready = rows(shift.url, "SELECT attempts, crashes, reason FROM redrive_job WHERE state = 0")
    shift.balanced()
    done = shift.states()[DONE]
    return Drained(2 * jobs, done, sum(row[2] == "released" for row in ready), sum(row[0] + row[1] for row in ready), seconds)


class Died(NamedTuple):
    """The outcome of jobs whose worker crashed at a crash point."""

    reached: bool
    lost: list[str]
    doubled: list[str]


KINDS = {"work": 6, "task": 6, "paid": 6, "flaky": 4, "narrow": 6, "down": 12}


def crash_at_point(shift: Shift, point: str) -> Died:
    """One worker is killed anywhere, the next one at the point, and a third one finishes."""
    for kind, count in KINDS.items():
        if kind != "paid":  # the first worker would have done them before it is killed
            shift.submit(kind, count=count)
    gate = shift.diary.with_name("gate")
    if point.partition(".")[0] not in ("park", "pardon"):
        gate.touch()
        first = shift.hire()
        shift.until(lambda: shift.begun("work").total() >= 2, "the first worker is at work")
        os.kill(first, signal.SIGKILL)
        shift.zygote.wait(first)
    shift.submit("paid", count=KINDS["paid"])
    status = shift.wait(shift.hire("until=idle", crash_at=f"{point}:1:kill"))
    assert status in (0, -signal.SIGKILL), shift.story()
    gate.touch()
    assert shift.wait(shift.hire("until=idle")) == 0, shift.story()
    paid = Counter(key for (key,) in rows(shift.url, "SELECT key FROM effect"))
    lost_attempts = {
        (kind, key): many
        for kind, key, many in rows(
            shift.url,
            "SELECT kind, key, count(*) FROM redrive_attempt JOIN redrive_job ON id = job_id "
            "WHERE outcome = 'lost' GROUP BY kind, key",
        )
    }
    lost, doubled = [], []
    for kind, count in KINDS.items():
        effects = shift.effects(kind)
        for key in (f"k{n:03}" for n in range(count)):
            if not effects[key]:
                lost.append(f"{kind}/{key}")
            if effects[key] > 1 + lost_attempts.get((kind, key), 0) or (kind == "paid" and paid[key] != 1):
                doubled.append(f"{kind}/{key}: {effects[key]} effects, paid {paid[key]}")
    assert shift.states() == {DONE: sum(KINDS.values())}, shift.states()
    shift.balanced()
    return Died(status != 0, lost, doubled)
