"""Due: when to ask the ledger again though nobody was told of anything: when the next job falls due. Looked up now and then."""

from __future__ import annotations

import math
from collections.abc import Callable

LOOK = 0.25
"""Seconds between two looks, at least."""
POLL = 5.0
"""Seconds after which it is looked up anyway, and asked anyway: the net below notifications."""


class Due:
    """Belongs to the ledger thread."""

    def __init__(self, look: Callable[[], float | None]) -> None:
        """look: seconds until the next falls due; None: nothing waits."""
        self._look = look
        self._known, self._looked, self._stale = math.inf, -math.inf, True

    def changed(self) -> None:
        """Something was submitted: what is known may be wrong."""
        self._stale = True

    def comes(self, at: float, /) -> None:
        """Something falls due then, on the monotonic clock."""
        self._known = min(self._known, at)

    def ask(self, now: float, /) -> bool:
        """Whether something is due: it is looked up."""
        self._looked, self._stale = now, False
        left = self._look()
        self._known = math.inf if left is None else now + left
        return self._known <= now

    def next(self, now: float, /) -> float:
        """When to ask again, on the monotonic clock."""
        since = now - self._looked
        if since > POLL or (since >= LOOK and (self._stale or self._known <= now)):
            self.ask(now)
        # What is due by now and was not claimed is somebody's who claims just then, or above a limit.
        again = self._looked + LOOK if self._stale or self._known <= now else self._known
        return min(again, now + POLL)
