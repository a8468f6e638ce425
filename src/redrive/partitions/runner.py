"""Runner: a worker's chore: claims partitions that are due, has them extracted and judged, and says what became of them."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from datetime import datetime
from time import monotonic

from ..core.context import clock_around
from ..core.outage import Parking
from ..ledger.crashpoint import crash_point
from ..ledger.ledger import Ledger
from .authority import Authority
from .control import Control
from .end import ended
from .extracting import Done, Held, coroutine, plain
from .extraction import Extraction
from .loop import Loop
from .outage import Outages
from .record import Return, Verdict
from .told import tell_expired, tell_judged, tell_late, tell_returned

LEASE = 60.0
"""Seconds, renewed four times in that."""
POLL = 1.0
"""Seconds between two looks for what is due."""
GRACE = 1.0
"""Seconds that cancelled extractions have to end."""
ENDS = ("accepted", "rejected", "terminal", "returned", "late")
"""What becomes of extractions, as they are counted."""


class Runner:
    """Extracts what is due. Its methods belong to the thread of the chore; each attempt has a thread of its own, or the loop.

    Any number of runners may work on one ledger: a partition has one lease at a time, and a late one changes nothing.
    """

    name = "extractions"
    every = 0.0

    def __init__(
        self, ledger: Ledger, extractions: Sequence[Extraction], /, *, places: int, name: str | None = None,
        lease: float = LEASE, parking: Parking | None = None,
    ) -> None:  # fmt: skip
        """places: extractions at once. name: what its name begins with (default: the host's). parking: what is an outage."""
        self.worker = f"{socket.gethostname() if name is None else name}-{os.getpid()}-{secrets.token_hex(3)}"
        terms = [one.terms for one in extractions]
        self._control, self._authority = Control(ledger, terms), Authority(ledger, terms)
        self._known = {one.terms.dataset: one for one in extractions}
        self._places, self._lease = places, lease
        self._held: dict[str, Held] = {}
        """By run."""
        self._inbox: deque[Done] = deque()
        self._verdicts: list[tuple[Done, Verdict]] = []
        self._returns: list[tuple[Done, Return]] = []
        self._parking = Parking() if parking is None else parking
        self._outages = Outages(self._parking, self._control.is_only_customer)
        self._spare: dict[tuple[int, int], str] = {}
        """Attempts that were rejected, and turned out to be an outage's."""
        self._ended: Counter[str] = Counter()
        self._poke = threading.Event()
        self._next: datetime | None = None
        """When one that was rejected here is tried again."""
        self._renewed = monotonic()
        self._stopping = False
        self._context = copy_context()
        self._loop = Loop(f"{self.worker}-loop")

    def sign(self, worker: str, /) -> None:
        """Its leases bear the name of the worker that it is a chore of."""
        self.worker = worker

    def do(self, now: datetime, /) -> None:
        """One round, and a wait for something to do."""
        if not self.turn(now):
            soon = POLL if self._next is None else max(0.0, (self._next - clock_around().now()).total_seconds())
            self._next = None
            rated = POLL if self._control.soon is None else self._control.soon
            self.rest(min(POLL, self._lease / 8, soon, rated))

    def turn(self, now: datetime, /) -> bool:
        """Write down what has ended, hold on to what runs, take what there is room for. True: there may be more at once."""
        self._settle(now)
        self._renew()
        free = self._places - len(self._held)
        return free > 0 and self._claim(free) == free

    @property
    def busy(self) -> int:
        """Extractions under way, or not written down yet."""
        return len(self._held)

    @property
    def tally(self) -> dict[str, int]:
        """Extractions that are running, and what became of the others."""
        return {"running": len(self._held)} | {name: self._ended[name] for name in ENDS}

    def rest(self, seconds: float, /) -> None:
        """Until an extraction has ended, or so long."""
        if not self._inbox:
            self._poke.wait(seconds)
        self._poke.clear()

    def wake(self) -> None:
        """The worker stops: don't wait for anything."""
        self._poke.set()

    def drain(self, left: Callable[[], float], /) -> None:
        """The worker stops: what runs may end within the time that is left; then its leases go back, uncharged."""
        self._stopping = True
        while self._held and left() > 0:
            self._try(self._renew)
            self.rest(min(0.2, max(0.0, left())))
            self._try(self._settle_now)
        self._loop.cancel()
        over = monotonic() + GRACE
        while any(held.extraction.colour == "async" for held in self._held.values()) and monotonic() < over:
            self.rest(0.05)
            self._try(self._settle_now)
        for held in self._held.values():
            held.lost = True
        self._returns += [
            (Done(held, None, None, monotonic() - held.began), Return(held.lease, "stopped")) for held in self._held.values()
        ]
        self._try(self._settle_now)
        self._loop.close()

    # ---- leases ----

    def _claim(self, free: int) -> int:
        leases = self._control.claim(free, worker=self.worker, lease=self._lease)
        for expired in self._control.expired:
            self._ended["terminal"] += 1
            tell_expired(self._known[expired.partition.source, expired.partition.query_name], expired)
        if leases:
            crash_point("extract.claimed")
        for at, lease in enumerate(leases):
            held = Held(self._known[lease.partition.source, lease.partition.query_name], lease)
            try:
                self._begin(held)
            except Exception:  # no thread can be had just now: they are somebody else's to try
                rest = [Held(held.extraction, one) for one in leases[at:]]
                self._returns += [(Done(one, None, None, 0.0), Return(one.lease, "stopped")) for one in rest]
                raise
        return len(leases)

    def _begin(self, held: Held) -> None:
        extraction, lease = held.extraction, held.lease
        context = self._context.copy()
        if extraction.colour == "async":
            self._loop.give(lease.run_id, lambda: self._attempted(held), context)
        else:
            name = f"{self.worker}-{lease.run_id}"
            threading.Thread(target=context.run, args=(self._attempt, held), name=name, daemon=True).start()
        self._held[lease.run_id] = held

    def _attempt(self, held: Held) -> None:
        self._tell(plain(held))

    async def _attempted(self, held: Held) -> None:
        self._tell(await coroutine(held))

    def _tell(self, done: Done) -> None:
        self._inbox.append(done)
        self._poke.set()

    def _renew(self) -> None:
        """Hold on to what runs; not to a plain function that is far beyond its time, which nobody can stop."""
        now = monotonic()
        if now - self._renewed < self._lease / 4 or not self._held:
            return
        live = [held.lease for held in self._held.values() if not held.lost and now < held.end + self._lease]
        lost = self._control.renew(live, lease=self._lease) if live else []
        self._renewed = now
        for lease in lost:
            if held := self._held.get(lease.run_id):
                held.lost = True
                self._loop.cancel(lease.run_id)

    # ---- ends ----

    def _settle_now(self) -> None:
        self._settle(clock_around().now())

    def _settle(self, now: datetime) -> None:
        """What has ended becomes durable, all of it in one transaction; what cannot be written now waits, and keeps its place."""
        while self._inbox:
            done = self._inbox.popleft()
            found = ended(done, now, self._parking, stopping=self._stopping)
            if isinstance(found, Verdict):
                self._verdicts.append((done, found))
                self._seen(done, found)
            elif found is not None:
                self._returns.append((done, found))
            else:
                self._ended["late"] += 1
                tell_late(done)
                self._held.pop(done.held.lease.run_id, None)
        self._give_back()  # before verdicts: a source that rests from now on spares those that failed for the same
        if self._verdicts:
            judged = self._authority.judge([verdict for _, verdict in self._verdicts])
            for (done, verdict), one in zip(self._verdicts, judged, strict=True):
                if one.outcome == "spared":
                    self._returns.append((done, _systemic(done, verdict, verdict.message)))
                    continue
                self._held.pop(done.held.lease.run_id, None)
                self._ended["terminal" if one.terminal is not None else one.outcome] += 1
                tell_judged(done, verdict, one, now)
                if one.next_at is not None and (self._next is None or one.next_at < self._next):
                    self._next = one.next_at
            self._verdicts = []
        self._give_back()

    def _seen(self, done: Done, verdict: Verdict) -> None:
        """Whether this makes an outage: then neither it nor those before it are charged, as far as the bound allows."""
        outage = self._outages.add(done.held.lease, verdict, monotonic(), answered=done.verdict is not None)
        if outage is None:
            return
        attempts = set(outage.attempts)
        mine = [pair for pair in self._verdicts if _attempt(pair[0]) in attempts and not pair[1].charged]
        unsaid = {_attempt(each) for each, _ in self._verdicts}
        self._verdicts = [pair for pair in self._verdicts if pair not in mine]
        self._returns += [(each, _systemic(each, judged, outage.says)) for each, judged in mine]
        self._spare |= {attempt: outage.says for attempt in outage.attempts if attempt not in unsaid}

    def _give_back(self) -> None:
        if not self._returns and not self._spare:
            return
        self._control.give_back([given for _, given in self._returns], spare=self._spare, most=self._parking.uncharged)
        for done, given in self._returns:
            self._held.pop(done.held.lease.run_id, None)
            self._ended["returned"] += 1
            tell_returned(done, given)
        self._returns, self._spare = [], {}

    def _try(self, act: Callable[[], object]) -> None:
        """While it drains: a ledger that is away must not keep the others from ending."""
        try:
            act()
        except Exception:
            self._poke.wait(0.1)


def _attempt(done: Done) -> tuple[int, int]:
    return done.held.lease.partition_id, done.held.lease.attempt_no


def _systemic(done: Done, verdict: Verdict, says: str | None) -> Return:
    """What failed for a fault that is everybody's."""
    return Return(done.held.lease, "systemic", error=says, after=verdict.after, signature=verdict.signature)
