"""Board: lets the processes of a measurement start together, and tells them when to stop."""

import mmap
import struct
import time
from collections.abc import Callable
from pathlib import Path

READING, STOPPED = 1, 2
"""Phases. Before them, processes connect."""
NOT_READY = -1
NUMBER = struct.Struct("q")
POLL_SECONDS = 0.01


class Board:
    """A file that processes share: the phase, and for each process the number of its messages."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("r+b") as file:
            self._numbers = mmap.mmap(file.fileno(), 0)

    @classmethod
    def create(cls, path: Path, processes: int) -> "Board":
        """Create the board. No process is ready."""
        path.write_bytes(NUMBER.pack(0) + NUMBER.pack(NOT_READY) * processes)
        return cls(path)

    @property
    def phase(self) -> int:
        """The current phase."""
        return self._get(0)

    @phase.setter
    def phase(self, phase: int) -> None:
        self._set(0, phase)

    @property
    def counts(self) -> list[int]:
        """Messages of each process."""
        return [self._get(place) for place in range(1, len(self._numbers) // NUMBER.size)]

    def report(self, process: int, count: int) -> None:
        """Set the number of messages of a process. The first call says that it is ready."""
        self._set(process + 1, count)

    def _get(self, place: int) -> int:
        number: int = NUMBER.unpack_from(self._numbers, place * NUMBER.size)[0]
        return number

    def _set(self, place: int, number: int) -> None:
        NUMBER.pack_into(self._numbers, place * NUMBER.size, number)


def wait_until(is_true: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition, at most for a time. Return whether it is true."""
    until = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_SECONDS)
    return True
