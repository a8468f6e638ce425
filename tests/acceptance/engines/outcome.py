"""Outcome: a drill of an engine in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Outcome(NamedTuple):
    """What became of the messages of one drill."""

    sent: int
    """Messages that the engine had confirmed."""
    lost: int
    """Messages of these that no handler got."""
    twice: int
    """Messages that a handler got more than once."""
    left: int
    """Messages that were not acknowledged at the end."""
    seconds: float

    @property
    def is_good(self) -> bool:
        return self.sent > 0 and (self.lost, self.twice, self.left) == (0, 0, 0)


def outcome_of(sent: Sequence[str], handled: Counter[str], left: int, seconds: float) -> Outcome:
    """Count lost and duplicated messages."""
    lost = sum(1 for each in sent if not handled[each])
    return Outcome(len(sent), lost, sum(1 for times in handled.values() if times > 1), left, seconds)
