"""`make soak`: mixed load with random faults for hours, then a check of the whole history, and a picture of what has grown.

python -m tests.acceptance.soak.soak [--minutes 120] [--database postgres|sqlite] [--seed 1] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg

from redrive.ledger import open_ledger
from redrive.ops import DeadLetterFilter, Operator
from tests.acceptance.crash.oracle import connection
from tests.servers.postgres import Cluster, postgres_cluster
from tests.servers.process import die_with_parent
from tests.servers.relay import Relay

from .check import Outcome, check, count_unfinished
from .faults import Faults
from .growth import Growth, measure
from .program import EFFECTS_TABLE, FOLDER, LEDGER

ROOT = Path(__file__).parents[3]
STEADY = "steady"
"""Role of a worker that no fault kills or stops, so that its growth shows."""
ROLES = (("work", "w1"), ("work", "w2"), (STEADY, "w3"), ("submit", "ann"), ("submit", "bob"))
BETWEEN_FAULTS = 8.0
"""Mean seconds between two faults."""
END_SECONDS = 180.0
"""Time for all jobs to end after the last fault."""
POLL_SECONDS = 0.2
START_TRIES, START_SECONDS = 5, 10.0
SAMPLES = 240
SETTINGS = ("max_connections=100", "shared_buffers=64MB", "unix_socket_directories=", "timezone=UTC")


class Programs:
    """Workers and submitters as processes. One that ends is started again."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self._folder = url, folder
        self._env = os.environ | {FOLDER: str(folder), LEDGER: url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self._running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._is_stopping = False
        self.restarts: Counter[str] = Counter()
        """By role."""

    def start(self) -> None:
        """Start the processes that do not run."""
        for role, name in ROLES:
            child = self._running.get((role, name))
            if (child is None or child.poll() is not None) and not (self._is_stopping and role == "submit"):
                self.restarts[role] += child is not None
                self._running[role, name] = self._start(role, name)

    def _start(self, role: str, name: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.out").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.acceptance.soak.program", role, name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=self._env,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )

    def pids(self, role: str) -> list[int]:
        """Return the running processes of a role."""
        return [child.pid for (of, _), child in self._running.items() if of.startswith(role) and child.poll() is None]

    def wait(self, seconds: float) -> None:
        """Let time pass, and start ended processes again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.start()
            time.sleep(POLL_SECONDS)

    def stop_submitters(self) -> None:
        """Let them end after their last acknowledged submission."""
        self._is_stopping = True
        (self._folder / "stop").touch()
        for (role, name), child in self._running.items():
            if role == "submit" and child.wait(120):
                # It was killed, or it failed: its last submission was not acknowledged.
                print(f"submitter {name} ended with {child.returncode}", file=sys.stderr)

    def close(self) -> None:
        """End all processes."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in self._running.values():
                if child.poll() is None:
                    child.send_signal(number)
            for child in self._running.values():
                try:
                    child.wait(20)
                except subprocess.TimeoutExpired:
                    continue

    def explain(self) -> str:
        """Return the last lines of all processes."""
        return "\n".join(f"--- {file.name}\n{file.read_text()[-1500:]}" for file in sorted(self._folder.glob("*.out")))


class PostgresServer:
    """A server of its own behind a relay."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stack, self._server = ExitStack(), ExitStack()
        self.direct = self._server.enter_context(cluster.running(SETTINGS))
        port = int(self.direct.rpartition(":")[2].partition("/")[0])
        self._relay = self._stack.enter_context(Relay(port))
        self.url = f"postgresql://postgres@127.0.0.1:{self._relay.port}/postgres"

    def restart(self, away: float) -> None:
        """Kill the server, and start it again."""
        self._cluster.kill()
        self._server.close()
        time.sleep(away)
        for _ in range(START_TRIES):  # it does not start while a process of the old server lives
            self._server.close()
            self._server.enter_context(self._cluster.running(SETTINGS))
            if self._answers():
                return
        raise RuntimeError("the server did not start again")

    def _answers(self) -> bool:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                psycopg.connect(self.direct, connect_timeout=2).close()
                return True
            except psycopg.Error:
                time.sleep(POLL_SECONDS)
        return False

    def stall(self, seconds: float) -> None:
        """Let no byte through."""
        self._relay.hold()
        time.sleep(seconds)
        self._relay.go_on()

    def close(self) -> None:
        """Stop the relay and the server."""
        self._server.close()
        self._stack.close()


@contextmanager
def _ledger(database: str, folder: Path) -> Iterator[tuple[str, str, PostgresServer | None]]:
    """Yield the address for the programs, the one for the check, and the server."""
    if database == "sqlite":
        url = f"sqlite:///{folder / 'ledger.db'}"
        yield url, url, None
        return
    with postgres_cluster() as cluster:
        server = PostgresServer(cluster)
        try:
            yield server.url, server.direct, server
        finally:
            server.close()


class Soak(NamedTuple):
    """The result of a soak."""

    outcome: Outcome
    faults: dict[str, int]
    growth: Growth
    seconds: float


def soak(database: str, minutes: float, seed: int, folder: Path) -> Soak:
    """Run a soak in an empty folder and return its result."""
    with ExitStack() as stack:
        url, direct, server = stack.enter_context(_ledger(database, folder))
        open_ledger(direct, migrate=True).close()
        with connection(direct) as opened:
            opened.execute(f"CREATE TABLE {EFFECTS_TABLE} (number text NOT NULL)")
        programs = Programs(url, folder)
        stack.callback(programs.close)
        programs.start()
        faults = Faults(programs, server, seed)
        growth, anchors = Growth(), []
        chance = random.Random(seed)
        started = time.monotonic()
        end = started + minutes * 60
        next_sample = started
        while time.monotonic() < end:
            programs.wait(min(chance.expovariate(1 / BETWEEN_FAULTS), max(0.0, end - time.monotonic())))
            faults.next()
            programs.start()
            if time.monotonic() >= next_sample:
                next_sample = time.monotonic() + minutes * 60 / SAMPLES
                growth.add(time.monotonic() - started, measure(direct, programs.pids(STEADY)))
                anchors += _operate(direct, chance)
        programs.stop_submitters()
        last = time.monotonic() + END_SECONDS
        while count_unfinished(direct) and time.monotonic() < last:
            programs.wait(1.0)
        programs.close()
        outcome = check(direct, folder, anchors=anchors)
        if programs.restarts[STEADY]:
            outcome.problems.append(f"the worker that is not killed ended {programs.restarts[STEADY]} times")
        if outcome.problems:
            print(programs.explain(), file=sys.stderr)
        return Soak(outcome, dict(faults.counts), growth, time.monotonic() - started)


def _operate(url: str, chance: random.Random) -> list[str]:
    """Do what an operator does: replay a few dead letters, pause a job type. Return the head of the audit log."""
    with open_ledger(url) as ledger:
        operator = Operator(ledger, actor="soak")
        if chance.random() < 0.5:
            operator.apply(operator.dead_letters.replay(DeadLetterFilter(kind="bad", limit=5)), because="soak")
        if chance.random() < 0.3:
            operator.pauses.pause("job type", "plain", because="soak")
            operator.pauses.resume("job type", "plain", because="soak")
        return [operator.audit.verify().anchor]


def report(database: str, result: Soak) -> str:
    """Return the result as text."""
    outcome = result.outcome
    faults = ", ".join(f"{count} × {name}" for name, count in sorted(result.faults.items()))
    lines = [
        f"{database}: {result.seconds / 60:.1f} min, {sum(result.faults.values())} faults ({faults})",
        f"{outcome.acknowledged:,} acknowledged, {outcome.ended:,} ended, {outcome.lost} lost",
        f"{outcome.repeated} repeated after a fault, {outcome.dead:,} dead letters",
        *result.growth.lines(),
        *(f"PROBLEM: {problem}" for problem in outcome.problems[:20]),
        f"{len(outcome.problems)} problems",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak on each database. Return 1 if there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance.soak.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120, help="minutes of load for each database (default: 120)")
    parser.add_argument("--database", choices=("postgres", "sqlite", "both"), default="both")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="seed of the faults")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the pictures")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    has_problems = False
    for database in ("postgres", "sqlite") if options.database == "both" else (options.database,):
        folder = Path(tempfile.mkdtemp(prefix="redrive-soak-"))
        result = soak(database, options.minutes, options.seed, folder)
        if not result.outcome.problems:
            shutil.rmtree(folder)
        picture = options.out / f"soak-{database}.svg"
        picture.write_text(result.growth.picture(f"Soak on {database}"), encoding="utf-8")
        print(f"{report(database, result)}\n{picture}\n", flush=True)
        if result.outcome.problems:
            print(f"files of the programs: {folder}\n", flush=True)
        has_problems = has_problems or bool(result.outcome.problems)
    return int(has_problems)


if __name__ == "__main__":
    sys.exit(main())
