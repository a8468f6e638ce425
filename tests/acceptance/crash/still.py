"""Still: a process that is stopped, for good until it is told to go on, and keeps nobody out."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

PATIENCE = 60.0


def still(pid: int, url: str) -> None:
    """SIGSTOP, not in the middle of a write: there it would keep all others out of a SQLite file, and that is another case."""
    _stop(pid)
    while not writable(url):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.003)
        _stop(pid)


def _stop(pid: int) -> None:
    """And wait: a thread that is in the middle of a system call ends that first, and may get a lock by it."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def writable(url: str) -> bool:
    """Whether anybody can write there now."""
    if not url.startswith("sqlite"):
        return True
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=0.2)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
