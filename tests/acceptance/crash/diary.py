"""A diary: a file to which processes append lines, and which survives them. It is independent of the database."""

from __future__ import annotations

import os
from pathlib import Path


class Diary:
    """Lines of words. Several processes may write, because a line is one system call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: object) -> None:
        """Append a line."""
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> list[list[str]]:
    """Return all lines in order."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []
