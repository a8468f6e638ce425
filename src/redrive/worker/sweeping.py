"""Sweeping: what operators have begun to do to many, carried out by workers: whoever began it may be gone."""

from __future__ import annotations

from datetime import datetime

from ..ledger.ledger import Ledger
from ..ledger.sweep import LETTERS

ROUND = 20
"""Steps of one sweep before the next has its turn."""


class Sweeping:
    """Carries out the steps of every sweep over dead letters that runs. A chore: any number of workers may do it at once."""

    name = "sweeps"
    every = 1.0

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def do(self, _now: datetime, /) -> None:
        """The next steps of each."""
        for sweep in self._ledger.sweeps.list(state="running", acts=LETTERS):
            for _ in range(ROUND):
                step = self._ledger.sweeps.step(sweep.id)
                if step.sweep.state != "running" or step.wait:
                    break
