"""Stop a process by SIGSTOP while it holds no lock."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

PATIENCE = 60.0


def still(pid: int, url: str) -> None:
    """Send SIGSTOP outside of a write. Inside of one, the process would block all writers of a SQLite file."""
    _stop(pid)
    while not writable(url):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.003)
        _stop(pid)


def _stop(pid: int) -> None:
    """Wait until threads have finished their system calls, which may still acquire a lock."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def writable(url: str) -> bool:
    """Return whether the database accepts a write."""
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
