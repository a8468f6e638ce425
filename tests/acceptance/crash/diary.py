"""A diary: a file to which processes add lines, and which outlives them. What is in it happened, whatever a database says."""

from __future__ import annotations

import os
from pathlib import Path


class Diary:
    """Lines of words. Any number of processes may write: a line is one system call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: object) -> None:
        """One line more."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def close(self) -> None:
        """Nothing more."""
        os.close(self._file)


def read(path: Path) -> list[list[str]]:
    """All lines so far, in their order."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []
