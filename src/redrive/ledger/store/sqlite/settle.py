"""Settle on SQLite."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, func, insert, null, update

from ...db.compiled import BatchRunner, compile_sqlite, sql_int, sql_text
from ...db.tables import attempt, dead, job
from ...events import read_origin
from ...model import DEAD, DONE, FAILED, READY, Settlement, lease_key
from ...stats.failure_groups import (
    FailureDelta,
    FailureGroup,
    clip_signature,
    merge_deltas,
    sample,
)
from ...timestamps import MICROSECONDS, to_micros
from ...validation import storable_text
from .claim import IS_HELD, IS_HELD_RANGE, RANGE_PARAMETERS, id_ranges
from .counters import add_all, add_failures

MAX_RANGES = 10
"""With more ranges of ids, `executemany` is faster."""

_done = update(job).values(state=sql_int(DONE), lease_until=null(), ended_at=bindparam("now"))
SETTLE_DONE = compile_sqlite(
    _done.values(result=bindparam("answer")).where(*IS_HELD),
    *("now", "answer", "of_id", "of_fence", "of_token"),
)
SETTLE_DONE_RANGE = compile_sqlite(_done.where(*IS_HELD_RANGE), "now", *RANGE_PARAMETERS)
_SETTLED_COLUMNS = (
    *("id", "fence", "kind", "key", "attempts", "worker", "started_at", "dead_id"),
    *("version", "payload", "headers", "ids"),
)
_refund = case((job.c.started_at.is_not(None), bindparam("uncharge")), else_=sql_int(0))
# A job that was only claimed keeps its reason when it goes back.
_kept_reason: ColumnElement[Any] = func.coalesce(bindparam("why_dead"), job.c.reason)
SETTLE = compile_sqlite(
    update(job)
    .values(
        state=bindparam("to_state"),
        attempts=job.c.attempts - _refund,
        due_at=bindparam("due"),
        lease_until=null(),
        ended_at=bindparam("ended"),
        reason=case((job.c.started_at.is_(None), _kept_reason), else_=bindparam("why")),
        error=bindparam("fault"),
        result=bindparam("answer"),
    )
    .where(*IS_HELD)
    .returning(*(job.c[name] for name in _SETTLED_COLUMNS)),
    *("to_state", "uncharge", "due", "ended", "why_dead", "why", "fault", "answer"),
    *("of_id", "of_fence", "of_token"),
)
_ATTEMPT_COLUMNS = (
    *("job_id", "fence", "number", "outcome", "worker", "reason", "error"),
    *("started_at", "ended_at"),
)
INSERT_ATTEMPT = compile_sqlite(
    insert(attempt).values({name: bindparam(name) for name in _ATTEMPT_COLUMNS}),
    *_ATTEMPT_COLUMNS,
)
_LETTER_COLUMNS = (
    *("kind", "key", "job_id", "reason", "blocked", "blocked_until", "error", "signature"),
    *("attempts", "version", "payload", "headers", "ids", "source", "source_id"),
    *("last_attempt_at", "created_at", "updated_at"),
)
INSERT_LETTER = compile_sqlite(
    insert(dead).values({name: bindparam(name) for name in _LETTER_COLUMNS}), *_LETTER_COLUMNS
)
REPLAY_DIED = compile_sqlite(
    update(dead)
    .values(
        job_id=bindparam("died"),
        status=sql_text("pending"),
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
    *("died", "why", "waits", "waits_until", "fault", "alike", "made", "last", "now", "of_id"),
)
REPLAY_DONE = compile_sqlite(
    update(dead)
    .values(status=sql_text("replayed"), updated_at=bindparam("now"))
    .where(dead.c.id == bindparam("of_id")),
    *("now", "of_id"),
)


def settle_successes(run: BatchRunner, done: Sequence[Settlement], now: int, /) -> bool:
    """Settle a batch of plain successes. The caller updates the counters.

    Returns:
        False if a lease is lost. Then roll back and use `settle`.
    """
    if not done:
        return True
    if len(done) == 1:
        only = done[0]
        return run.execute(SETTLE_DONE, (now, only.result, *lease_key(only))).rowcount == 1
    has_results = [each.result for each in done].count(None) < len(done)
    if not has_results and len(ranges := id_ranges(done)) <= MAX_RANGES:
        count = sum(run.execute(SETTLE_DONE_RANGE, (now, *ids)).rowcount for ids in ranges)
    else:
        rows = [(now, each.result, *lease_key(each)) for each in done]
        count = run.executemany(SETTLE_DONE, rows).rowcount
    return count == len(done)


def settle(run: BatchRunner, settlements: Sequence[Settlement], now: int, /) -> list[Settlement]:
    """Settle one by one. Returns the settlements that were too late and changed nothing."""
    late: list[Settlement] = []
    failed: list[Settlement] = []
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for settlement in settlements:
        if _settle(run, settlement, now):
            bucket = {"done": "done", "again": "ready"}.get(settlement.outcome, "dead")
            changes[settlement.kind].update({"leased": -1, bucket: 1})
            if settlement.outcome != "done":
                failed.append(settlement)
        else:
            late.append(settlement)
            changes[settlement.kind]["late"] += 1
    add_all(run, changes)
    if failed:
        add_failures(run, merge_deltas(map(_failure_of, failed)), now)
    return late


def _failure_of(settlement: Settlement) -> tuple[FailureGroup, FailureDelta]:
    has_died = int(settlement.outcome in ("dead", "blocked"))
    is_blocked = int(settlement.outcome == "blocked")
    signature = clip_signature(settlement.signature)
    has_failed = int(signature is not None)
    group = (settlement.kind, signature or "")
    if not has_died and not has_failed:
        return group, FailureDelta()
    error = sample(storable_text(settlement.error))
    return group, FailureDelta(has_failed, has_died, has_died, is_blocked, settlement.job_id, error)


def _settle(run: BatchRunner, settlement: Settlement, now: int) -> bool:
    state = {"done": DONE, "again": READY}.get(settlement.outcome, DEAD)
    due = now + int(settlement.after * MICROSECONDS)
    ended = None if state == READY else now
    reason, error = storable_text(settlement.reason), storable_text(settlement.error)
    why_dead = reason if state == DEAD else None
    values = (state, int(not settlement.charged), due, ended, why_dead, reason, error)
    row = run.execute(SETTLE, (*values, settlement.result, *lease_key(settlement))).fetchone()
    if row is None:
        return False
    job_id, fence, kind, key, attempts, worker, started, dead_id = row[:8]
    if state != DONE and (settlement.charged or error is not None):
        attempt_row = (job_id, fence, attempts, FAILED, worker, reason, error, started, now)
        run.execute(INSERT_ATTEMPT, attempt_row)
    if state == DONE and dead_id is not None:
        run.execute(REPLAY_DONE, (now, dead_id))
    if state == DEAD:
        is_blocked = settlement.outcome == "blocked"
        until = None if settlement.until is None else to_micros(settlement.until)
        death = (reason, is_blocked, until, error, clip_signature(settlement.signature), attempts)
        if dead_id is not None:
            run.execute(REPLAY_DIED, (job_id, *death, started, now, dead_id))
        else:
            version, payload, headers, ids = row[8:]
            content = (version, payload, headers, ids, *read_origin(headers))
            run.execute(INSERT_LETTER, (kind, key, job_id, *death, *content, started, now, now))
    return True
