"""Looking: a check that goes through the rows, one at a time, so that all such checks share one reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..model import Finding
from ..raw.files import Raw


class Look(Protocol):
    """One check under way over one run. Belongs to one thread."""

    def row(self, row: dict[str, Any], /) -> None:
        """The next row."""

    def finding(self) -> Finding:
        """What came of it."""

    def close(self) -> None:
        """Let go of what it holds, also where it came to nothing."""


class Looking:
    """A check of rows. Called, it reads them by itself; a validator has all of them read together. Threads may share it."""

    def __init__(self, name: str, begin: Callable[[Raw], Look], /, *, final: bool = False) -> None:
        """begin: ready for the first row. final: where it says no, extracting again would not help."""
        self.__name__ = name
        self.begin = begin
        self.final = final

    def __call__(self, raw: Raw, /) -> Finding:
        look = self.begin(raw)
        try:
            for row in raw.rows():
                look.row(row)
            return look.finding()
        finally:
            look.close()

    def __repr__(self) -> str:
        return f"<check {self.__name__}>"
