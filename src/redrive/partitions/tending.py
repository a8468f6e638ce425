"""Tending: a worker's chore: what the control plane does now and then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ..ledger.ledger import Ledger
from ..worker.clocks import Jumps
from .control import Control
from .extraction import Extraction


class Tending:
    """Takes back leases that ran out, and carries sweeps on. Any number of workers may do it at once."""

    name = "partitions"
    every = 1.0

    def __init__(self, ledger: Ledger, extractions: Sequence[Extraction], /) -> None:
        self._control = Control(ledger, [one.terms for one in extractions])
        self._jumps = Jumps()

    def do(self, _now: datetime, /) -> None:
        """Once."""
        self._control.tick(self._jumps)
