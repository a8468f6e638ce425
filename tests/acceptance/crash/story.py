"""The program that is killed at each crash point. It uses every operation of the ledger, and can be restarted until it ends.

It has two types of effects: rows in its own table, written in the transaction that settles, and lines in a diary outside of any
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from redrive.errors import Suspended
from redrive.ledger import Lease, Ledger, NewJob, Settlement, access, failpoint, open_ledger
from redrive.ledger.jobs import limits, pauses, schedule_runs
from redrive.ledger.store.signals import send_to_job
from redrive.worker.steps import JobSteps

from .diary import Diary, read

WORKER = "story"
LEASE = 3600  # the test releases leases of a killed process without waiting
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)
KEYS = ("first", "second")
"""Two of each type, so that every operation runs a second time before the end."""

# Job type -> number of diary effects without a crash
EFFECTS = {
    "plain": 1,  # settled by the next turn
    "own": 1,  # settled separately
    "paid": 1,  # in one transaction with a row of the user
    "flaky": 2,  # fails once
    "doomed": 2,  # a dead letter, replayed
    "swept": 2,  # a dead letter, replayed by a sweep
    "hopeless": 1,  # a dead letter, discarded
    "waiting": 2,  # blocked until a time in the past
    "wished": 1,  # submitted in one transaction with a row of the user
    "brief": 1,  # its key expires when it is pruned
    "revoked": 1,  # cancelled while it is queued, and submitted again
    "later": 1,  # scheduled for tomorrow, and run now
    "halted": 1,  # cancelled while it runs
    "stepped": 3,  # a step, then two waits for signals
    "ordered": 1,  # one after another, settled in the user's transaction
    "planned": 1,  # the run of a schedule that was paused and resumed
    "fired": 1,  # the run of a schedule that an operator fired
}
SUBMITTED_APART = ("ordered", "plain", "wished", "brief", "later", "halted", "planned", "fired")
SIGNALS = ("approved", "paid")
TABLES = (
    "CREATE TABLE effect (kind text NOT NULL, key text NOT NULL)",
    "CREATE TABLE wish (key text NOT NULL PRIMARY KEY)",
)


def main(arguments: Sequence[str]) -> int:
    """Run from the beginning to the end, continuing after any earlier run."""
    url, path = arguments
    diary = Diary(Path(path))
    with open_ledger(url, migrate=True) as ledger:
        ledger.migrate()
        ledger.maintenance.heartbeat(WORKER)
        submit(ledger, diary)
        control(ledger, diary)
        pause_and_limit(ledger)
        grant_access(ledger)
        while True:
            work(ledger, diary)
            has_work = send_signals(ledger)
            if not look_after_the_dead(ledger) and not has_work:
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
    """Submit everything again, as a producer without a response does."""
    known = {(words[1], words[2]) for words in read(diary.path) if words[0] == "submitted"}
    for key in KEYS:
        ledger.submit(NewJob("plain", key))
        diary.note("submitted", "plain", key)
    batch = [NewJob(kind, key) for kind in EFFECTS if kind not in SUBMITTED_APART for key in KEYS]
    batch += [NewJob("later", key, delay=86_400) for key in KEYS]
    batch += [NewJob("ordered", key, tenant=key, sequence="one") for key in KEYS]
    # An expired key counts as new. Submit it only until the submission was acknowledged.
    batch += [NewJob("brief", key, keep=0) for key in KEYS if ("brief", key) not in known]
    batch += [NewJob("halted", key) for key in KEYS if ("halted", key) not in known]
    for job in ledger.submit_many(batch):
        diary.note("submitted", job.kind, job.key)
    for key in KEYS:
        with ledger.begin() as tx:
            tx.execute(text("INSERT INTO wish VALUES (:key) ON CONFLICT DO NOTHING"), {"key": key})
            ledger.submit(NewJob("wished", key), tx=tx)
        diary.note("submitted", "wished", key)


def control(ledger: Ledger, diary: Diary) -> None:
    """Cancel queued jobs, submit their keys again, and run scheduled jobs now, as an operator."""
    revoked = {words[1] for words in read(diary.path) if words[0] == "revoked"}
    for key in KEYS:
        if key not in revoked:
            job = ledger.find("revoked", key)
            assert job is not None
            ledger.control.cancel([job.id], actor="test", because="a mistake")
            diary.note("revoked", key)
        ledger.submit(NewJob("revoked", key))
        scheduled = ledger.find("later", key)
        assert scheduled is not None
        ledger.control.run_now([scheduled.id], actor="test", because="hurry")


def pause_and_limit(ledger: Ledger) -> None:
    """Pause and resume a schedule, set and reset a limit, and fire a schedule, as an operator."""
    who: Any = {"actor": "test", "because": "hurry"}
    for key in KEYS:
        with ledger.connections.write.use() as session:
            pauses.pause(session, "schedule", "planned", until=None, **who)
        assert pauses.submit_runs(ledger.connections, [NewJob("planned", key)]) == []
        with ledger.connections.write.use() as session:
            pauses.resume(session, "schedule", "planned", **who)
        assert pauses.submit_runs(ledger.connections, [NewJob("planned", key)]) == ["planned"]
        with ledger.connections.write.use() as session:
            limits.set_limit(session, "planned", concurrency=1, **who)
            limits.reset_limit(session, "planned", **who)
        schedule_runs.fire(ledger.connections, NewJob("fired", key), **who)
    with ledger.reading() as connection:
        assert not pauses.read_pauses(connection, ledger.now())
        assert not limits.read_limits(connection)


def grant_access(ledger: Ledger) -> None:
    """Create and revoke a token, start and end a session, as an operator."""
    who: Any = {"actor": "test", "because": "a new program"}
    now = ledger.now()
    role: Any = {"role": "operator", "acts": None, "job_types": None, "revoked_at": None}
    for key in KEYS:
        token = access.StoredToken(key, uuid4().hex, created_at=now, created_by="", expires_at=None, **role)
        signed_in = access.StoredSession(uuid4().hex, key, via="password", started_at=now, expires_at=now + timedelta(1), **role)
        with ledger.reading() as connection:
            valid = {each.name for each in access.list_tokens(connection) if each.is_valid(now)}
        with ledger.connections.write.use() as session:
            if key not in valid:
                access.create_token(session, token, **who)
            access.revoke_token(session, key, **who)
            access.start_session(session, signed_in)
            access.end_sessions(session, like=signed_in)
    with ledger.reading() as connection:
        assert not any(each.is_valid(now) for each in access.list_tokens(connection))
        assert not access.list_sessions(connection, now)


def work(ledger: Ledger, diary: Diary) -> None:
    """Claim batches first, then the quarantined jobs one by one, as a worker."""
    kinds = dict.fromkeys(EFFECTS, 2)
    settlements: list[Settlement] = []
    while True:
        ledger.maintenance.heartbeat(WORKER)
        ledger.reap()
        leases, late, *_ = ledger.turn(settlements, kinds, worker=WORKER, lease=LEASE, total=5, start=False)
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
                elif begun.kind == "stepped":
                    run_steps(ledger, diary, begun)
                else:
                    settle(ledger, begun)


def run_steps(ledger: Ledger, diary: Diary, lease: Lease) -> None:
    """Charge once and wait for two signals, as a job with steps."""
    job = JobSteps(ledger, lease, ledger.now)
    try:
        job.step("charge", diary.note, ("charged", lease.key), {})
        diary.note("stored", lease.key)
        for name in SIGNALS:
            job.wait_for(name, LEASE)
        ledger.settle(lease.done())
    except Suspended:
        job.suspend()


def send_signals(ledger: Ledger) -> bool:
    """Send the first signal alone and the second one in a transaction. Return whether a job was waiting."""
    has_sent = False
    is_sqlite = ledger.connections.on_sqlite
    for key in KEYS:
        job = ledger.find("stepped", key)
        if job is None or job.waits_for not in SIGNALS:
            continue
        has_sent = True
        if job.waits_for == SIGNALS[0]:
            with ledger.connections.write.use() as session, session.transaction("signal"):
                send_to_job(session.run, job.id, SIGNALS[0], b"1", sqlite=is_sqlite)
        else:
            with ledger.begin() as tx:
                send_to_job(ledger.connections.adopt_transaction(tx), job.id, SIGNALS[1], b"2", sqlite=is_sqlite)
                failpoint.crash_point("signal.in_caller")
    return has_sent


def settle(ledger: Ledger, lease: Lease) -> None:
    """Settle the job in the way of its type."""
    if lease.kind == "paid":
        with ledger.begin() as tx:
            tx.execute(text("INSERT INTO effect VALUES (:kind, :key)"), {"kind": lease.kind, "key": lease.key})
            ledger.settle(lease.done(), tx=tx)
    elif lease.kind == "ordered":
        with ledger.begin() as tx:
            ledger.settle(lease.done(), tx=tx)
    elif lease.kind == "halted":
        ledger.control.cancel([lease.job_id], actor="test", because="a mistake")
        ledger.settle(lease.again(0, error="stopped", reason="failed"))
    elif lease.kind == "flaky" and lease.attempt == 1:
        ledger.settle(lease.again(0, error="not yet", reason="flaky"))
    elif lease.kind in ("doomed", "swept", "hopeless") and lease.dead_id is None:
        ledger.settle(lease.dead("broken", error="no use"))
    elif lease.kind == "waiting" and lease.dead_id is None:
        ledger.settle(lease.blocked("waits", until=LONG_AGO))
    else:
        ledger.settle(lease.done(b"result"))


def look_after_the_dead(ledger: Ledger) -> bool:
    """Decide about dead letters as an operator. Return whether jobs are queued again."""
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
    """Continue an unfinished sweep, or begin one. Return whether it replayed anything."""
    for left in ledger.sweeps.list(state="running"):
        return bool(ledger.sweeps.step(left.id).done)
    ids = [letter.id for letter in ledger.dead_letters(status="pending", kind="swept")]
    if ids:
        begun = ledger.sweeps.begin("replay", ids, actor="test", because="fixed")
        return bool(ledger.sweeps.step(begun.id).done)
    return False
