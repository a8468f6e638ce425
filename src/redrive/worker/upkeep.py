"""Upkeep: what a worker does for the ledger and for all workers, beside the jobs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from ..core.clock import SYSTEM
from ..journal.bus import emit
from ..ledger import failures, kinds, pardon, prune, workers
from ..ledger.bury import bury
from ..ledger.kinds import Parked
from ..ledger.ledger import Ledger
from ..ledger.now import now_on
from ..ledger.setback import JOB_LEASE, LEAST, TOLERANCE, set_back
from .clocks import Clocks, Reading, step
from .hand import Hand
from .process import gone
from .timers import PATIENCE, Timer, Timers

REAP = 1.0
LOOK = 1.0
BURY = 5.0
BURY_SOON = 0.5
UNBLOCK = 5.0
FOLD = 5.0
PRUNE = 60.0
PRUNE_SOON = 1.0
FORGET = 3600.0
"""Seconds between two times."""
PRUNE_BATCH = 1000
"""Jobs that are pruned at a time. If there are more, the next batch follows after PRUNE_SOON."""
FOREVER = math.inf
"""Keep done jobs for ever."""


class Upkeep:
    """Beats, renews, and takes back what others lost. Belongs to the ledger thread."""

    def __init__(
        self, ledger: Ledger, name: str, hand: Hand, *, lease: float, keep: float, info: Callable[[], Mapping[str, Any]],
        lost: Callable[[list[Any]], None], reaped: Callable[[], None], seen: Callable[[dict[str, Parked]], None],
    ) -> None:  # fmt: skip
        self._ledger, self._name, self._hand = ledger, name, hand
        self._lease, self._keep = lease, keep
        self._info, self._lost, self._reaped, self._seen = info, lost, reaped, seen
        self._ahead = timedelta(0)
        """How far the ledger's clock is ahead of this machine's."""
        self.clocks = Clocks(enabled=ledger.connections.on_sqlite and not ledger.connections.address.in_memory)
        self._clock: Reading | None = None
        """The ledger's clock at the last prompt heartbeat."""
        self._is_back = True
        """The ledger's clock was set back, perhaps before this worker started; `set_back` has not run since."""
        self._reaps_from = -math.inf
        """When leases are taken back again after the ledger's clock jumped ahead, on the monotonic clock."""
        self._trips: deque[float] = deque(maxlen=4)
        self.trip = 0.0
        """Seconds of a round trip to the ledger; 0 for a file."""
        # In this order: a worker that was stopped for a while says so first, and holds what it has, before it takes back
        # leases that ran out, which may be its own.
        self._buries = Timer(BURY, self._bury)
        self._prunes = Timer(PRUNE, self._prune, first=PRUNE)
        self.timers = Timers(
            Timer(lease / 4, self._beat, patient=False),
            Timer(lease / 4, self._renew, patient=False),
            self._buries,
            Timer(REAP, self._reap),
            Timer(LOOK, self._look),
            Timer(UNBLOCK, self._unblock),
            Timer(FOLD, ledger.fold, first=FOLD),
            self._prunes,
            Timer(FORGET, self._forget, first=PRUNE),
        )

    def run(self) -> None:
        """Do what is due."""
        self.timers.run(trip=self.trip)

    def now(self) -> datetime:
        """The moment by the ledger's clock."""
        return SYSTEM.now() + self._ahead

    def _beat(self) -> None:
        if not self.clocks.checked:
            self._compare_clocks()
        if self.clocks.problem is not None:
            return
        before, began = SYSTEM.now(), monotonic()
        theirs = self._ledger.beat(self._name, self._info())
        reading = Reading(theirs, began, monotonic())
        self._ahead = theirs - before - timedelta(seconds=(reading.ended - began) / 2)
        if reading.is_prompt:
            self._notice_step(reading)
        if self._is_back and self.clocks.checked:
            self._set_back()

    def _compare_clocks(self) -> None:
        with self._ledger.connections.read.use() as session:
            others = {one.name: one.seen_at for one in workers.present(session.core) if one.name != self._name}
            now = now_on(session)
        self.clocks.look(others, now, monotonic())

    def _notice_step(self, reading: Reading) -> None:
        before, self._clock = self._clock, reading
        stepped = 0.0 if before is None else step(before, reading)
        if stepped < -LEAST:
            self._is_back = True
        elif stepped > LEAST:
            self._reaps_from = reading.ended + JOB_LEASE
        if abs(stepped) > TOLERANCE:
            self.clocks.doubt()

    def _set_back(self) -> None:
        with self._ledger.connections.write.use() as session:
            by = set_back(session)
        self._is_back = False
        if by:
            emit("clock_set_back", {"worker": self._name, "seconds": round(by, 3)})
            self._reaped()

    def _renew(self) -> None:
        leases = self._hand.older(self._lease / 8)
        lost = self._hand.lose(self._ledger.renew(leases, lease=self._lease)) if leases else []
        if lost:
            self.alive(lost)
            self._lost(lost)

    def alive(self, leases: list[Any], /) -> None:
        """These were lost, and this worker lives: it did not crash."""
        with self._ledger.connections.write.use() as session:
            pardon.alive(session, self._name, leases)

    def _bury(self) -> None:
        """Workers of this machine whose process is gone don't keep others waiting for their leases."""
        with self._ledger.connections.read.use() as session:
            others = [one for one in workers.present(session.core) if one.name != self._name]
        silent = [one for one in others if gone(one.info.get("process"))]
        names = [one.name for one in silent if not workers.is_fresh(one, self.now())]
        if len(names) < len(silent):  # killed a moment ago; or alive, on a clone of this machine
            self._buries.due = monotonic() + BURY_SOON
        if names:
            with self._ledger.connections.write.use() as session:
                held = bury(session, names)
            for name in names:
                emit("worker_gone", {"worker": name, "leases": held if len(names) == 1 else None})

    def _reap(self) -> None:
        # By a clock that is ahead, leases of live workers would seem to have run out.
        if self.clocks.checked and monotonic() >= self._reaps_from and self._ledger.reap(trusts=self._trusts):
            self._reaped()

    def _trusts(self, now: datetime) -> bool:
        """Whether the ledger's clock is where it should be. If it has jumped ahead, live workers first renew their leases."""
        at = monotonic()
        if self._clock is None or step(self._clock, Reading(now, at, at)) <= LEAST:
            return True
        self._reaps_from = at + JOB_LEASE
        return False

    def _look(self) -> None:
        with self._ledger.connections.read.use() as session:
            began = monotonic()
            parked = kinds.parked(session)
            took = monotonic() - began
        self._seen(parked)
        if not self._ledger.connections.on_sqlite:
            # A read, which waits for no disk; the shortest of the last ones, since a slow one waited for something else.
            self._trips.append(took)
            self.trip = min(self._trips) if len(self._trips) > 1 else 0.0

    def _unblock(self) -> None:
        self._ledger.unblock()

    def _prune(self) -> None:
        if self._keep == FOREVER:
            return
        began = monotonic()
        with self._ledger.connections.write.use() as session:
            found = prune.prune(session, self._keep, PRUNE_BATCH)
        if max(found) >= PRUNE_BATCH:
            # There are more. Pruning takes a twentieth of this thread's time at most.
            ended = monotonic()
            self._prunes.due = ended + max(PRUNE_SOON, PATIENCE * (ended - began))

    def _forget(self) -> None:
        with self._ledger.connections.write.use() as session:
            workers.forget(session)
            failures.forget(session)
