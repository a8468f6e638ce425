"""Memory: how often items were refused without being charged, where their store does not remember it. For one process."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..core.lock import LOCK


class Memory:
    """Counts in memory. Threads may share one; a forked child has a copy of its own."""

    def __init__(self) -> None:
        self._spared: dict[str, int] = {}

    def spare_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        """Add one to each; the new counts."""
        with LOCK:
            for item_id in item_ids:
                self._spared[item_id] = self._spared.get(item_id, 0) + 1
            return {item_id: self._spared[item_id] for item_id in item_ids}

    def forget(self, item_ids: Iterable[str], /, *, keep: Collection[str]) -> None:
        """Drop those that are settled, so that it does not grow."""
        if self._spared:
            with LOCK:
                for item_id in item_ids:
                    if item_id not in keep:
                        self._spared.pop(item_id, None)
