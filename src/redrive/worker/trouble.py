"""Trouble: a ledger that cannot be reached. Said once, and waited for, longer each time."""

from __future__ import annotations

from ..journal.bus import emit

FIRST, LONGEST = 0.05, 2.0
"""Seconds to wait: at first, and at most."""


class Trouble:
    """Belongs to the ledger thread; others may read what it says."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._pause = FIRST
        self.says: str | None = None
        """What the ledger said last; None: all is well."""

    def met(self, error: Exception, /) -> float:
        """The ledger failed; seconds to wait."""
        if self.says is None:
            emit("ledger_trouble", {"worker": self._worker, "error": str(error), "error_class": type(error).__name__})
        self.says = f"{type(error).__name__}: {error}"
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST)
        return pause

    def over(self) -> None:
        """It answers again."""
        self.says, self._pause = None, FIRST
