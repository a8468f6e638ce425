"""Settle on SQLite."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import itemgetter

from sqlalchemy import bindparam, case, func, insert, null, update

from ...db.compiled import Many, number, sqlite
from ...db.compiled import words as word
from ...db.tables import attempt, dead, job
from ...db.types import MICROSECONDS, micros
from ...events import origin
from ...record import Settlement, lease_name
from ...state import DEAD, DONE, FAILED, LEASED, READY
from ...stats.failure_deltas import Alike, Failed, alike, gathered, sample
from ...validation import words
from . import failure_counters
from .claim import HELD
from .counters import add_all

DONE_ONLY = sqlite(
    update(job)
    .values(state=number(DONE), lease_until=null(), ended_at=bindparam("now"), result=bindparam("answer"))
    .where(*HELD),
    "now", "answer", "of_id", "of_fence", "of_token",
)  # fmt: skip
DONE_RANGE = sqlite(
    update(job)
    .values(state=number(DONE), lease_until=null(), ended_at=bindparam("now"))
    # Plus: an index over leases is no help where all of the rows follow one another.
    .where(job.c.id.between(bindparam("first"), bindparam("last")), job.c.fence == bindparam("of_fence"))
    .where(job.c.token == bindparam("of_token"), (job.c.state + number(0)) == number(LEASED)),
    "now", "first", "last", "of_fence", "of_token",
)  # fmt: skip
_SETTLED = (
    "id", "fence", "kind", "key", "attempts", "worker", "started_at", "dead_id", "version", "payload", "headers", "ids",
)  # fmt: skip
SETTLE = sqlite(
    update(job)
    .values(
        state=bindparam("to_state"),
        attempts=job.c.attempts - case((job.c.started_at.is_not(None), bindparam("uncharge")), else_=number(0)),
        due_at=bindparam("due"),
        lease_until=null(),
        ended_at=bindparam("ended"),
        # What was only claimed, and is given back, is as it was.
        reason=case((job.c.started_at.is_(None), func.coalesce(bindparam("why_dead"), job.c.reason)), else_=bindparam("why")),
        error=bindparam("fault"),
        result=bindparam("answer"),
    )
    .where(*HELD)
    .returning(*(job.c[name] for name in _SETTLED)),
    "to_state", "uncharge", "due", "ended", "why_dead", "why", "fault", "answer", "of_id", "of_fence", "of_token",
)  # fmt: skip
_ATTEMPT = ("job_id", "fence", "number", "outcome", "worker", "reason", "error", "started_at", "ended_at")
ATTEMPT = sqlite(insert(attempt).values({name: bindparam(name) for name in _ATTEMPT}), *_ATTEMPT)
_LETTER = (
    "kind", "key", "job_id", "reason", "blocked", "blocked_until", "error", "signature", "attempts", "version", "payload",
    "headers", "ids", "source", "source_id", "last_attempt_at", "created_at", "updated_at",
)  # fmt: skip
LETTER = sqlite(insert(dead).values({name: bindparam(name) for name in _LETTER}), *_LETTER)
RETURNED = sqlite(
    update(dead)
    .values(
        job_id=bindparam("died"),
        status=word("pending"),
        reason=bindparam("why"),
        blocked=bindparam("waits"),
        blocked_until=bindparam("waits_until"),
        error=bindparam("fault"),
        signature=bindparam("alike"),
        attempts=bindparam("made"),
        last_attempt_at=bindparam("last"),
        updated_at=bindparam("now"),
    )
    .where(dead.c.id == bindparam("of_id")),
    "died", "why", "waits", "waits_until", "fault", "alike", "made", "last", "now", "of_id",
)  # fmt: skip
REPLAYED = sqlite(
    update(dead).values(status=word("replayed"), updated_at=bindparam("now")).where(dead.c.id == bindparam("of_id")),
    "now",
    "of_id",
)


_BY_ID = itemgetter(0)
_CLAIMED = itemgetter(0, 1, Settlement._fields.index("result"), -1)
"""Id, fence, result and token."""
FEW = 9
"""Runs of ids."""


def done_rows(run: Many, done: Sequence[Settlement], now: int, /) -> bool:
    """Settle a batch that is done and replays nothing; whoever asks for it sees to the counts. False, with the transaction
    spoilt, where some lease is lost."""
    if not done:
        return True
    if len(done) == 1:
        one = done[0]
        return run.execute(DONE_ONLY.text, (now, one.result, *lease_name(one))).rowcount == 1
    runs = None if done[0].result is not None else _runs(done)
    if runs is None:
        found = run.executemany(DONE_ONLY.text, [(now, one.result, *lease_name(one)) for one in done]).rowcount
    else:
        found = sum(run.execute(DONE_RANGE.text, (now, *one)).rowcount for one in runs)
    return found == len(done)


def _runs(done: Sequence[Settlement]) -> list[tuple[int, int, int, int]] | None:
    """The first id, the last one, the fence and the token of ids that follow one another, where there are few such runs and
    nothing else is to be said of any.

    So it is with jobs that were written and begun together. A statement for each of them would let other threads go first each
    time.
    """
    runs: list[tuple[int, int, int, int]] = []
    first = last = fence = token = -1
    for job_id, of_fence, result, of_token in sorted(map(_CLAIMED, done), key=_BY_ID):
        if result is not None:
            return None
        if job_id == last + 1 and of_fence == fence and of_token == token:
            last = job_id
            continue
        if last >= 0:
            runs.append((first, last, fence, token))
        first, last, fence, token = job_id, job_id, of_fence, of_token
        if len(runs) > FEW:
            return None
    return [*runs, (first, last, fence, token)]


def settle(run: Many, settlements: Sequence[Settlement], now: int, /) -> list[Settlement]:
    """Settle each by itself; the ones that came too late, which changed nothing."""
    late: list[Settlement] = []
    failed: list[Settlement] = []
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for one in settlements:
        if _settled(run, one, now):
            bucket = {"done": "done", "again": "ready"}.get(one.outcome, "dead")
            changes[one.kind].update({"leased": -1, bucket: 1})
            if one.outcome != "done":
                failed.append(one)
        else:
            late.append(one)
            changes[one.kind]["late"] += 1
    add_all(run, changes)
    if failed:
        failure_counters.add(run, gathered(map(_failed, failed)), now)
    return late


def _failed(one: Settlement) -> tuple[Alike, Failed]:
    died, blocked = int(one.outcome in ("dead", "blocked")), int(one.outcome == "blocked")
    name = alike(one.signature)
    tried = int(name is not None)
    if not died and not tried:
        return (one.kind, ""), Failed()
    return (one.kind, name or ""), Failed(tried, died, died, blocked, one.job_id, sample(words(one.error)))


def _settled(run: Many, one: Settlement, now: int) -> bool:
    state = {"done": DONE, "again": READY}.get(one.outcome, DEAD)
    due = now + int(one.after * MICROSECONDS)
    ended = None if state == READY else now
    reason, error = words(one.reason), words(one.error)
    row = run.execute(
        SETTLE.text,
        (state, int(not one.charged), due, ended, reason if state == DEAD else None, reason, error, one.result,
         *lease_name(one)),
    ).fetchone()  # fmt: skip
    if row is None:
        return False
    job_id, fence, kind, key, attempts, worker, started, dead_id, version, payload, headers, ids = row
    if state != DONE and (one.charged or error is not None):
        run.execute(ATTEMPT.text, (job_id, fence, attempts, FAILED, worker, reason, error, started, now))
    if state == DONE and dead_id is not None:
        run.execute(REPLAYED.text, (now, dead_id))
    if state == DEAD:
        blocked, until = one.outcome == "blocked", None if one.until is None else micros(one.until)
        if dead_id is not None:
            run.execute(
                RETURNED.text,
                (job_id, reason, blocked, until, error, alike(one.signature), attempts, started, now, dead_id),
            )
        else:
            run.execute(
                LETTER.text,
                (kind, key, job_id, reason, blocked, until, error, alike(one.signature), attempts, version, payload, headers, ids,
                 *origin(headers), started, now, now),
            )  # fmt: skip
    return True
