"""Sweeping: what operators have begun to do to many, carried out by workers: whoever began it may be gone."""

from __future__ import annotations

from datetime import datetime

from ..ledger.ledger import Ledger
from ..ledger.sweep import LETTERS

IDLE = 1.0
"""Seconds between two looks for sweeps."""
ROUND = 20
"""Steps of one sweep before the next has its turn."""


class Sweeping:
    """Carries out the steps of every sweep over dead letters that runs. A chore: any number of workers may do it at once."""

    name = "sweeps"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.every = IDLE
        """Seconds until the next round: as soon as the rate of a sweep allows more, so that the rate is kept."""

    def do(self, _now: datetime, /) -> None:
        """Take the next steps of each."""
        pause = IDLE
        for sweep in self._ledger.sweeps.list(state="running", acts=LETTERS):
            pause = min(pause, self._round(sweep.id))
        self.every = pause

    def _round(self, sweep_id: int) -> float:
        """Take some steps of one; the seconds until its next step makes sense."""
        for _ in range(ROUND):
            step = self._ledger.sweeps.step(sweep_id)
            if step.sweep.state != "running":
                return IDLE
            if step.wait:
                return step.wait
        return 0.0
