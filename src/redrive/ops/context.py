"""The context of an operator: which ledger, in whose name, and defaults that all skins share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .project.target import ledger_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from .project.target import Operated

MAX_REPLAYS = 10
"""A dead letter that was replayed this many times is skipped."""
QUIET = 60.0
"""Seconds without a heartbeat after which a worker is offline."""
MOST_COUNTED = 100_000
"""Totals of lists are counted up to this number."""
MAX_CHAIN_JOBS = 100
"""Jobs of one dead letter that are read: the one that died, and its replays."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What every part of an operator needs. Immutable. Threads may share one."""

    app: Operated
    actor: str

    @property
    def ledger(self) -> Ledger:
        """The ledger. The ledger of an app is opened at its first use."""
        return ledger_of(self.app)

    def record(self, action: str, because: str, details: Mapping[str, Any]) -> None:
        """Write an entry of the audit log."""
        self.ledger.record(actor=self.actor, action=action, because=because, what=details)


def check_reason(because: object, /) -> None:
    """Raise ValueError if the reason for the audit log is empty."""
    if not isinstance(because, str) or not because.strip():
        raise ValueError(f"because= must say why: {because!r}")
