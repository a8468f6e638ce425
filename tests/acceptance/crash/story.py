"""The program that is killed at each crash point: it goes through every verb of the ledger, and can be started again and again
until it comes to its end.

Effects are of two kinds: rows of its own table, written in the transaction that settles, and lines in a diary, which no
transaction covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from sqlalchemy import text

from redrive.ledger import Lease, Ledger, NewJob, Settlement, open_ledger

from .diary import Diary, read

WORKER = "story"
LEASE = 3600  # what a dead process held is given back by the test, not by waiting
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)
KEYS = ("first", "second")
"""Of each kind two: every verb is passed a second time before the end."""

# kind -> how often its effect in the diary happens where nobody dies
EFFECTS = {
    "plain": 1,  # settled by the next turn
    "own": 1,  # by a settle of its own
    "paid": 1,  # in one transaction with a row of ours
    "flaky": 2,  # fails once
    "doomed": 2,  # a dead letter, replayed
    "swept": 2,  # a dead letter, replayed by a sweep
    "hopeless": 1,  # a dead letter, discarded
    "waiting": 2,  # blocked until a moment that has come
    "wished": 1,  # submitted in one transaction with a row of ours
    "brief": 1,  # its key is forgotten as soon as it is pruned
}
TABLES = (
    "CREATE TABLE effect (kind text NOT NULL, key text NOT NULL)",
    "CREATE TABLE wish (key text NOT NULL PRIMARY KEY)",
)


def main(arguments: Sequence[str]) -> int:
    """From the beginning to the end, over whatever an earlier run has left."""
    url, path = arguments
    diary = Diary(Path(path))
    with open_ledger(url, migrate=True) as ledger:
        ledger.migrate()
        ledger.maintenance.heartbeat(WORKER)
        submit(ledger, diary)
        while True:
            work(ledger, diary)
            if not look_after_the_dead(ledger):
                break
        for _ in range(2):
            ledger.prune(0, limit=5)
        while ledger.prune(0):
            pass
        ledger.maintenance.fold_counters()
        ledger.maintenance.fold_counters()
        ledger.maintenance.deregister_worker(WORKER)
    diary.note("end")
    return 0


def submit(ledger: Ledger, diary: Diary) -> None:
    """As a producer does that was told nothing: everything again."""
    known = {(words[1], words[2]) for words in read(diary.path) if words[0] == "submitted"}
    for key in KEYS:
        ledger.submit(NewJob("plain", key))
        diary.note("submitted", "plain", key)
    batch = [NewJob(kind, key) for kind in EFFECTS if kind not in ("plain", "wished", "brief") for key in KEYS]
    # What is forgotten is new if it comes again; so it comes only until we were told that it is there.
    batch += [NewJob("brief", key, keep=0) for key in KEYS if ("brief", key) not in known]
    for job in ledger.submit_many(batch):
        diary.note("submitted", job.kind, job.key)
    for key in KEYS:
        with ledger.begin() as tx:
            tx.execute(text("INSERT INTO wish VALUES (:key) ON CONFLICT DO NOTHING"), {"key": key})
            ledger.submit(NewJob("wished", key), tx=tx)
        diary.note("submitted", "wished", key)


def work(ledger: Ledger, diary: Diary) -> None:
    """As a worker does: batches first, then one by one what was running when a worker died."""
    kinds = dict.fromkeys(EFFECTS, 2)
    settlements: list[Settlement] = []
    while True:
        ledger.maintenance.heartbeat(WORKER)
        ledger.reap()
        leases, late, _ = ledger.turn(settlements, kinds, worker=WORKER, lease=LEASE, total=5, start=False)
        settlements = []
        for one in late:
            diary.note("late", one.kind, one.job_id)
        if not leases:
            leases = ledger.claim(kinds, worker=WORKER, lease=LEASE, start=False, alone=True)
        if not leases:
            return
        for lost in ledger.renew(leases, lease=LEASE):
            diary.note("lost", lost.kind, lost.key)
        for lease in leases:
            for begun in ledger.start([lease]):
                diary.note("effect", begun.kind, begun.key)
                if begun.kind in ("plain", "brief", "wished"):
                    settlements.append(begun.done())
                else:
                    settle(ledger, begun)


def settle(ledger: Ledger, lease: Lease) -> None:
    """Say what became of it, each kind in its own way."""
    if lease.kind == "paid":
        with ledger.begin() as tx:
            tx.execute(text("INSERT INTO effect VALUES (:kind, :key)"), {"kind": lease.kind, "key": lease.key})
            ledger.settle(lease.done(), tx=tx)
    elif lease.kind == "flaky" and lease.attempt == 1:
        ledger.settle(lease.again(0, error="not yet", reason="flaky"))
    elif lease.kind in ("doomed", "swept", "hopeless") and lease.dead_id is None:
        ledger.settle(lease.dead("broken", error="no use"))
    elif lease.kind == "waiting" and lease.dead_id is None:
        ledger.settle(lease.blocked("waits", until=LONG_AGO))
    else:
        ledger.settle(lease.done(b"result"))


def look_after_the_dead(ledger: Ledger) -> bool:
    """As an operator does; True where there is something to work on again."""
    again = bool(ledger.maintenance.unblock(limit=1).done)
    for letter in ledger.dead_letters(status="pending"):
        if letter.kind == "doomed":
            again |= bool(ledger.replay([letter.id], actor="test", because="fixed").done)
        elif letter.kind == "hopeless":
            ledger.discard([letter.id], actor="test", because="no use")
        elif letter.kind == "waiting":
            again = True
    return sweep(ledger) or again


def sweep(ledger: Ledger) -> bool:
    """Go on with a sweep that was left behind, or begin one; True where it brought anything back."""
    for left in ledger.sweeps.list(state="running"):
        return bool(ledger.sweeps.step(left.id).done)
    ids = [letter.id for letter in ledger.dead_letters(status="pending", kind="swept")]
    if ids:
        begun = ledger.sweeps.begin("replay", ids, actor="test", because="fixed")
        return bool(ledger.sweeps.step(begun.id).done)
    return False
