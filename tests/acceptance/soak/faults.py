"""Random faults of processes, of the server, of the network, of the disk and of the clock."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

STALL_SECONDS = 9.0
"""Longer than a lease."""
SERVER_AWAY_SECONDS = 3.0
FULL_SECONDS = 3.0
JUMP_SECONDS = 4.0


class Programs(Protocol):
    """The processes that faults happen to."""

    url: str

    def pids(self, role: str) -> list[int]:
        """Return the running processes of `work` or `submit`, or all of them for an empty text."""

    def wait(self, seconds: float) -> None:
        """Let time pass, and start ended processes again."""


class Server(Protocol):
    """A database server that can be killed, and started again."""

    def restart(self, away: float) -> None:
        """Kill the server, and start it again after so many seconds."""

    def stall(self, seconds: float) -> None:
        """Let no byte through to the server for so many seconds."""


class Faults:
    """Faults of one soak.

    Args:
        programs: The processes.
        server: The server. None: SQLite.
        seed: Seed of the choice.
    """

    def __init__(self, programs: Programs, server: Server | None, seed: int) -> None:
        self._programs, self._server, self._random = programs, server, random.Random(f"{seed}: faults")
        self.counts: Counter[str] = Counter()

    def next(self) -> str:
        """Let one fault happen, and return its name."""
        kinds: dict[str, Callable[[], None]] = {
            "worker killed": lambda: self._signal("work", signal.SIGKILL),
            "submitter killed": lambda: self._signal("submit", signal.SIGKILL),
            "worker drained": lambda: self._signal("work", signal.SIGTERM),
            "worker stalled": self._stall_worker,
            "workers killed together": lambda: self._signal("work", signal.SIGKILL, everyone=True),
        }
        if self._server is not None:
            kinds["server killed"] = lambda: self._server.restart(SERVER_AWAY_SECONDS)  # type: ignore[union-attr]
            kinds["network stalled"] = lambda: self._server.stall(STALL_SECONDS)  # type: ignore[union-attr]
        else:
            kinds["disk full"] = self._fill_disk
            kinds["clock jumped"] = self._let_clock_jump
        name = self._random.choice(sorted(kinds))
        kinds[name]()
        self.counts[name] += 1
        return name

    def _signal(self, role: str, number: int, *, everyone: bool = False) -> None:
        pids = self._programs.pids(role)
        for pid in pids if everyone else pids[:1] and [self._random.choice(pids)]:
            _send(pid, number)

    def _stall_worker(self) -> None:
        pids = self._programs.pids("work")
        if pids:
            pid = self._random.choice(pids)
            _send(pid, signal.SIGSTOP)
            self._programs.wait(STALL_SECONDS)
            _send(pid, signal.SIGCONT)

    def _fill_disk(self) -> None:
        """Let no file grow beyond the write-ahead log: commits fail as on a full disk."""
        log = Path(f"{self._programs.url.removeprefix('sqlite:///')}-wal")
        size = log.stat().st_size if log.exists() else 0
        pids = self._programs.pids("")
        for pid in pids:
            _limit_files(pid, size)
        self._programs.wait(FULL_SECONDS)
        for pid in pids:
            _limit_files(pid, resource.RLIM_INFINITY)

    def _let_clock_jump(self) -> None:
        pids = self._programs.pids("")
        for pid in pids:
            _send(pid, signal.SIGUSR1)
        self._programs.wait(JUMP_SECONDS)
        for pid in pids:
            _send(pid, signal.SIGUSR1)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


def _limit_files(pid: int, size: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
