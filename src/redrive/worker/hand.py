"""Hand: the leases that a worker holds now."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import NamedTuple

from ..ledger.record import Lease, lease_name
from .kind import Kind


class Held(NamedTuple):
    """One of them."""

    lease: Lease
    kind: Kind
    since: float


class Hand:
    """By lease. Belongs to the ledger thread; others may ask for counts."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, ...], tuple[Lease, Kind, float]] = {}
        """As Held has it: short jobs come by the hundred, and most are never asked for."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, given: Iterable[tuple[Kind, Lease]], /) -> None:
        """These, too."""
        now = monotonic()
        self._held.update({lease_name(lease): (lease, kind, now) for kind, lease in given})

    def older(self, seconds: float, /) -> list[Lease]:
        """Those that were taken so long ago."""
        before = monotonic() - seconds
        return [lease for lease, _, since in self._held.values() if since <= before]

    def all(self) -> list[Held]:
        """All of them."""
        return list(map(Held._make, list(self._held.values())))

    def lose(self, leases: Iterable[Lease], /) -> list[Lease]:
        """These are held no more: they have ended, or are somebody else's now; those of them that had been held."""
        return [lease for lease in leases if self._held.pop(lease_name(lease), None) is not None]

    @property
    def overdue(self) -> int:
        """Plain functions that run longer than their attempt may take."""
        now = monotonic()
        return sum(
            held.kind.colour != "async"
            and held.kind.settings.attempt_timeout is not None
            and now - held.since > held.kind.settings.attempt_timeout
            for held in self.all()
        )
