"""A Dask cluster for tests, from the wheel `distributed`: a scheduler and workers as processes, without dashboards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.servers.process import START_SECONDS, STOP_SECONDS, die_with_parent, free_port


class DaskCluster:
    """A scheduler at one port, and workers of one thread. Workers find modules in the folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"dask://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        self.scheduler = self._start("scheduler", ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"])

    def start_worker(self) -> None:
        options = ["--host", "127.0.0.1", "--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "0"]
        self.workers.append(self._start("worker", [f"tcp://127.0.0.1:{self.port}", *options]))

    def wait_for_scheduler(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert time.monotonic() < deadline, (self.folder / "dask.log").read_text()[-2000:]
            time.sleep(0.02)

    def kill(self, *processes: subprocess.Popen[bytes] | None) -> None:
        for process in processes:
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.wait(STOP_SECONDS)
        self.workers = [worker for worker in self.workers if worker not in processes]

    def close(self) -> None:
        self.kill(*self.workers, self.scheduler)

    def _start(self, kind: str, options: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "dask.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), *filter(None, sys.path)])},
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )
