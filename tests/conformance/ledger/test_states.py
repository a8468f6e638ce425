"""The displayed states of a job on both databases: these transitions, and no others (W-2)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.ledger import Lease, Ledger, NewJob, Settlement
from redrive.ledger.queries.overview import kind_summaries

POSSIBLE = {
    ("idle", "queued"),
    ("queued", "running"),
    ("running", "done"),
    ("running", "retry_wait"),
    ("retry_wait", "running"),
    ("running", "blocked"),
    ("running", "dlq"),
    ("dlq", "replaying"),
    ("blocked", "replaying"),
    ("replaying", "running"),
    # In addition to the document: `redrive dead discard`.
    ("dlq", "discarded"),
    ("blocked", "discarded"),
}
"""The transitions of one job, from one check to the next."""


class Drive:
    """One job, and every possible operation on it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.kind = f"w2-{uuid.uuid4().hex[:8]}"
        self.leases: list[Lease] = []
        self.begun: list[Lease] = []
        self.seen = [self.look()]

    def look(self) -> str:
        row = self.ledger.find(self.kind, "k")
        if row is None:
            return "idle"
        now = self.ledger.now()
        with self.ledger.reading() as connection:
            counted = kind_summaries(connection, now).get(self.kind)
        if row.state in ("ready", "leased", "dead"):
            assert counted is not None
            assert [name for name, many in counted.shown.items() if many] == [row.shown], "every view has the same name for it"
        return row.shown

    def do(self, act: str) -> None:
        ACTS[act](self)
        self.note()

    def note(self) -> None:
        now = self.look()
        if now != self.seen[-1]:
            self.seen.append(now)

    def submit(self) -> None:
        self.ledger.submit(NewJob(self.kind, "k", max_attempts=3))

    def claim(self, start: bool = True, lease: float = 60.0) -> None:
        for alone in (False, True):
            found = self.ledger.claim({self.kind: 1}, worker="w", start=start, lease=lease, alone=alone)
            self.leases += found
            self.begun += found if start else []

    def claim_only(self) -> None:
        self.claim(start=False)

    def start(self) -> None:
        begun = self.ledger.start(self.leases[-1:])
        self.leases += begun
        self.begun += begun

    def die(self) -> None:
        """A worker starts it and disappears."""
        self.claim(lease=0.0005)
        self.note()
        time.sleep(0.001)
        self.ledger.reap()

    def vanish(self) -> None:
        """A worker claims it and disappears before it starts."""
        self.claim(start=False, lease=0.0005)
        time.sleep(0.001)
        self.ledger.reap()

    def settle(self, how: Callable[[Lease], Settlement]) -> None:
        if self.leases:
            # Settle with any lease, also an old one, because the fence decides. A job that was only claimed can only be released.
            lease = self.leases[-1]
            self.ledger.turn([how(lease) if lease in self.begun else lease.release()], {}, worker="w")

    def late(self) -> None:
        if self.begun:
            self.ledger.turn([self.begun[0].done()], {}, worker="w")

    def blocked(self) -> None:
        soon = self.ledger.now() + timedelta(hours=-1)
        self.settle(lambda lease: lease.blocked("the bank is closed", until=soon))

    def replay(self) -> None:
        self.ledger.replay(self._letters(), actor="ann", because="mended")

    def discard(self) -> None:
        self.ledger.discard(self._letters(), actor="ann", because="of no use")

    def _letters(self) -> list[int]:
        return [letter.id for letter in self.ledger.dead_letters(kind=self.kind)]


ACTS: dict[str, Callable[[Drive], object]] = {
    "submit": Drive.submit,
    "claim": Drive.claim,
    "claim_only": Drive.claim_only,
    "start": Drive.start,
    "die": Drive.die,
    "vanish": Drive.vanish,
    "done": lambda drive: drive.settle(Lease.done),
    "again": lambda drive: drive.settle(lambda lease: lease.again(error="x")),
    "free": lambda drive: drive.settle(lambda lease: lease.again(reason="again", free=True)),
    "release": lambda drive: drive.settle(Lease.release),
    "dead": lambda drive: drive.settle(lambda lease: lease.dead("attempts", error="x")),
    "blocked": Drive.blocked,
    "late": Drive.late,
    "unblock": lambda drive: drive.ledger.maintenance.unblock(),
    "replay": Drive.replay,
    "discard": Drive.discard,
    "prune": lambda drive: drive.ledger.prune(0),
}


@pytest.mark.req("W-2")
def test_no_other_transition_is_possible(ledger: Ledger) -> None:
    seen: set[tuple[str, str]] = set()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(st.lists(st.sampled_from(sorted(ACTS)), min_size=4, max_size=16))
    def walk(acts: list[str]) -> None:
        drive = Drive(ledger)
        for act in ("submit", *acts):
            drive.do(act)
        made = set(zip(drive.seen, drive.seen[1:], strict=False))
        assert made <= POSSIBLE, f"{acts}: {drive.seen}"
        seen.update(made)

    walk()
    assert ("queued", "running") in seen


@pytest.mark.req("W-2")
def test_every_transition_is_possible(ledger: Ledger) -> None:
    """Every documented transition happens."""
    made: set[tuple[str, str]] = set()
    for acts in (
        ["submit", "claim", "again", "claim", "dead", "replay", "claim", "blocked", "unblock", "claim", "done"],
        ["submit", "claim", "free", "claim", "release", "claim_only", "start", "dead", "discard"],
        ["submit", "claim", "blocked", "discard"],
        ["submit", "die", "claim", "done"],
    ):
        drive = Drive(ledger)
        for act in acts:
            drive.do(act)
        made |= set(zip(drive.seen, drive.seen[1:], strict=False))
        assert drive.seen[-1] in ("done", "discarded")
    assert made == POSSIBLE
