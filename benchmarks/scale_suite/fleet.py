"""Empty commands per second with several worker processes on one Postgres."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks.isolation import ROOT
from benchmarks.ledger_suite.drain import analyze
from benchmarks.scale_suite.worker import COMMAND
from redrive import App
from redrive.ops import Operator

START_SECONDS = 60.0
MAX_SECONDS = 120.0
POLL_SECONDS = 0.02
_RATE = """
SELECT count(*) / nullif(extract(epoch FROM max(ended_at) - %s), 0) FROM redrive_job WHERE state = 2 AND ended_at > %s
"""
"""From the time when all workers run."""
_STARTED = """
SELECT max(first) FROM (SELECT min(ended_at) AS first FROM redrive_job WHERE state = 2 GROUP BY worker) AS workers
"""
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'redrive'"


class Fleet(NamedTuple):
    """Figures of one measurement."""

    rate: float
    """Commands per second, from the time when every worker has finished one. 0: it was too short to tell."""
    memory: float
    """MiB of one worker process, the largest."""
    connections: int


def measure(url: str, processes: int, jobs: int) -> Fleet:
    """Start worker processes, let them run a queue of jobs, and stop them.

    Raises:
        RuntimeError: They did not start, or did not finish in time.
    """
    with App(url, migrate=True) as app, ExitStack() as stack:

        @app.command(COMMAND)
        async def noop() -> None:
            return None

        operator = Operator(app.ledger, actor="bench")
        operator.pauses.pause("app", because="workers start")
        for at in range(0, jobs, 1000):
            app.submit_many(noop.bind() for _ in range(min(1000, jobs - at)))
        analyze(app.ledger)
        command = [sys.executable, "-m", "benchmarks.scale_suite.worker", url]
        options: Any = {"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers = [stack.enter_context(subprocess.Popen(command, **options)) for _ in range(processes)]
        stack.callback(lambda: [worker.kill() for worker in workers if worker.poll() is None])
        _wait(lambda: len(app.ledger.workers()) >= processes, START_SECONDS, "the workers did not start")
        operator.pauses.resume("app", because="all workers have started")
        _wait(lambda: app.ledger.counts()[COMMAND].done >= jobs, MAX_SECONDS, "the workers did not finish")
        connections = _read(app, _CONNECTIONS)
        memory = [json.loads(worker.communicate("", timeout=60)[0].rpartition("RATE ")[2]) for worker in workers]
        started = _read(app, _STARTED)
        return Fleet(float(_read(app, _RATE, started, started) or 0.0), max(memory), int(connections))


def _read(app: App, statement: str, *parameters: object) -> Any:
    with app.ledger.reading() as connection:
        return connection.exec_driver_sql(statement, parameters).scalar()


def _wait(condition: Any, seconds: float, problem: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(problem)
        time.sleep(POLL_SECONDS)
