"""`make ha-drill`: the primary of a Patroni cluster is killed repeatedly under load, as a table.

python -m tests.acceptance.ha.drill [kills]

Submitters and workers get libpq's address with both hosts, and are never restarted. An acknowledged submission must be done. A
job may run more than once, but not more often than the ledger has leased it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psycopg

from redrive.ledger import open_ledger
from redrive.ledger.model import DEAD, DONE
from tests.servers.process import ServerMissing, die_with_parent

from .patroni import HaCluster, ha_cluster, wait_for
from .program import FOLDER, LEDGER

ROOT = Path(__file__).parents[3]
WORKERS = 2
SUBMITTER_NAMES = ("ann", "bob")
MIN_LINES = 50
LOAD_SECONDS = 3.0
"""Seconds under load before each kill."""
MAX_LINE = 450
"""Maximum length of a worker's status line."""
HEADS = ("kill", "primary", "writable after", "submit acknowledged after", "job run after", "status lines clean after")


class Load:
    """Submitters and workers as processes, and their output files."""

    def __init__(self, address: str, folder: Path) -> None:
        self._folder = folder
        self._env = os.environ | {FOLDER: str(folder), LEDGER: address, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self._address = address
        work = ("-m", "redrive", "work", "tests.acceptance.ha.program:app", "--threads", "4")
        self.workers = [self._start(f"worker{number}", *work) for number in range(WORKERS)]
        self.submitters = [self._start(name, "-m", "tests.acceptance.ha.program", name) for name in SUBMITTER_NAMES]

    def _start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.out").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=self._env,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )

    def redrive(self, *words: str) -> tuple[int, str]:
        """Run a command of `redrive` on the cluster."""
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *words, "--ledger", self._address],
            capture_output=True, text=True, cwd=ROOT, env=self._env, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, (done.stdout + done.stderr).strip()

    def lines(self, file: str) -> list[tuple[str, float]]:
        """Names and times in one of the files."""
        with suppress(FileNotFoundError):
            pairs = (line.split() for line in (self._folder / file).read_text().splitlines())
            return [(name, float(at)) for name, at in pairs]
        return []

    def first_after(self, file: str, moment: float) -> float:
        """Return the seconds from a time to the next line."""
        wait_for(lambda: any(at > moment for _, at in self.lines(file)), self.explain)
        return next(at for _, at in self.lines(file) if at > moment) - moment

    def wait_until_under_way(self) -> None:
        """Wait until jobs are submitted and run."""
        moment = time.time()
        for file in ("acknowledged", "runs"):
            wait_for(lambda: sum(at > moment for _, at in self.lines(file)) >= MIN_LINES, self.explain)  # noqa: B023

    def status_lines(self) -> list[str]:
        """All lines that workers have printed."""
        return [line for number in range(WORKERS) for line in (self._folder / f"worker{number}.out").read_text().splitlines()]

    def is_untroubled(self) -> bool:
        """Whether the last line of every worker mentions no problem."""
        last = [(self._folder / f"worker{number}.out").read_text().splitlines()[-1:] for number in range(WORKERS)]
        return all(line and "ledger:" not in line[0] and "cannot" not in line[0] for line in last)

    def stop_submitters(self) -> None:
        """Let them end after their last acknowledged submission."""
        (self._folder / "stop").touch()
        for child in self.submitters:
            child.wait(120)

    def close(self) -> None:
        """End all processes."""
        for child in (*self.submitters, *self.workers):
            child.terminate()
        for child in (*self.submitters, *self.workers):
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()

    def explain(self) -> str:
        """Return their output."""
        return "\n".join(f"--- {file.name}\n{file.read_text()[-1500:]}" for file in self._folder.glob("*.out"))


def fail_over(cluster: HaCluster, load: Load) -> tuple[list[str], str]:
    """Kill the primary under load, and start it again as the standby. Return the cells of a line and the doctor's findings."""
    primary = cluster.wait_until_synchronous()
    load.wait_until_under_way()
    time.sleep(LOAD_SECONDS)
    moment = time.time()
    primary.kill()
    while_away = load.redrive("doctor")[1]
    wait_for(lambda: is_writable(cluster.address), cluster.explain)
    writable = time.time() - moment
    # Work in progress may end without the ledger: a submission within half a second, a claimed job at any time.
    acknowledged = 0.5 + load.first_after("acknowledged", moment + 0.5)
    cells = [primary.name, writable, acknowledged, writable + load.first_after("runs", moment + writable)]
    wait_for(load.is_untroubled, load.explain)
    cells.append(time.time() - moment)
    primary.start()
    return [cell if isinstance(cell, str) else f"{cell:.1f} s" for cell in cells], while_away


def is_writable(address: str) -> bool:
    """Return whether a new connection can write."""
    try:
        with psycopg.connect(address, autocommit=True, connect_timeout=2) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS drill_probe (id int)")
            return True
    except psycopg.Error:
        return False


class Count(NamedTuple):
    """The outcome of the jobs."""

    acknowledged: int
    lost: int
    """Acknowledged, and not done."""
    again: int
    """Ran more than once."""
    unexplained: int
    """Ran more often than they were leased."""


def count(cluster: HaCluster, load: Load) -> Count:
    """Wait until all jobs have ended, and compare the ledger with the files of the programs."""
    with psycopg.connect(cluster.address, autocommit=True) as connection:
        unfinished = "SELECT count(*) FROM redrive_job WHERE state NOT IN (%s, %s)"
        wait_for(lambda: connection.execute(unfinished, (DONE, DEAD)).fetchone() == (0,), load.explain)
        rows = connection.execute("SELECT key, state, fence FROM redrive_job").fetchall()
    jobs = {"/".join(key.split(":")[1:3]): (state, fence) for key, state, fence in rows}
    acknowledged = [name for name, _ in load.lines("acknowledged")]
    runs = Counter(name for name, _ in load.lines("runs"))
    return Count(
        len(acknowledged),
        sum(jobs.get(name, (None, 0))[0] != DONE or not runs[name] for name in acknowledged),
        sum(many > 1 for many in runs.values()),
        sum(many > jobs.get(name, (None, 0))[1] for name, many in runs.items()),
    )


def main(arguments: Sequence[str]) -> int:
    """Print the table. Return 1 if there is a problem."""
    kills = int(arguments[0]) if arguments else 5
    with ExitStack() as stack:
        begun = time.monotonic()
        try:
            cluster = stack.enter_context(ha_cluster())
        except ServerMissing as missing:
            print(f"NOT RUN: PATRONI. TO GET IT: {missing}", file=sys.stderr)
            return 1
        print(f"Patroni, etcd, a primary and a synchronous standby, started in {time.monotonic() - begun:.1f} s", flush=True)
        open_ledger(cluster.address, migrate=True).close()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-ha-")))
        load = Load(cluster.address, folder)
        stack.callback(load.close)
        print(f"\n| {' | '.join(HEADS)} |\n| --- | --- |{' ---: |' * (len(HEADS) - 2)}", flush=True)
        doctor = ""
        for number in range(1, kills + 1):
            cells, doctor = fail_over(cluster, load)
            print(f"| {number} | {' | '.join(cells)} |", flush=True)
        return report(cluster, load, doctor)


def report(cluster: HaCluster, load: Load, doctor: str) -> int:
    """Stop the load, print the outcome, and return 1 if there is a problem."""
    load.stop_submitters()
    found = count(cluster, load)
    cluster.wait_until_synchronous()
    ended = [name for name, child in (("worker", each) for each in load.workers) if child.poll() is not None]
    healthy, says = load.redrive("doctor")
    verified, chain = load.redrive("audit", "verify")
    longest = max(map(len, load.status_lines()))
    checks = {
        f"{found.acknowledged:,} submissions acknowledged, {found.lost} lost": not found.lost and found.acknowledged > 0,
        f"{found.again} jobs ran more than once, {found.unexplained} of them more often than leased": not found.unexplained,
        f"{WORKERS - len(ended)} of {WORKERS} workers are the first ones": not ended,
        f"doctor during a failover: {doctor}": len(doctor.splitlines()) == 1,
        f"doctor afterwards: {says.splitlines()[-1]}": healthy == 0,
        f"audit: {chain.splitlines()[0]}": verified == 0,
        f"the longest of {len(load.status_lines())} status lines has {longest} characters": longest <= MAX_LINE,
    }
    print()
    for text, is_right in checks.items():
        print(f"{'ok   ' if is_right else 'WRONG'} {text}")
    wrong = sum(not is_right for is_right in checks.values())
    print(f"\n{'no problems found' if not wrong else f'{wrong} are WRONG'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
