"""Settle on SQLite."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, case, func, insert, null, update

from ...db.compiled import BatchRunner, compile_sqlite, sql_int, sql_text
from ...db.tables import attempt, dead, job
from ...events import read_origin
from ...model import (
    CANCELLED,
    CANCELLED_ATTEMPT,
    DEAD,
    DONE,
    FAILED,
    READY,
    Settlement,
    SettleResult,
    lease_key,
)
from ...stats.failure_groups import (
    FailureDelta,
    FailureGroup,
    clip_signature,
    merge_deltas,
    sample,
)
from ...timestamps import MICROSECONDS, to_micros
from ...validation import storable_text
from .claim import IS_HELD, IS_HELD_RANGE, LISTED, RANGE_PARAMETERS, id_ranges, update_job
from .counters import add_all, add_failures
from .sequences import release

MAX_STATEMENTS = 10
"""With more ranges of ids, or more claims, `executemany` is faster."""

_done = update_job.values(state=sql_int(DONE), lease_until=null(), ended_at=bindparam("now"))
SETTLE_DONE = compile_sqlite(
    _done.values(result=bindparam("answer")).where(*IS_HELD),
    *("now", "answer", "of_id", "of_fence", "of_token"),
)
SETTLE_DONE_RANGE = compile_sqlite(_done.where(*IS_HELD_RANGE), "now", *RANGE_PARAMETERS)
SETTLE_DONE_IDS = compile_sqlite(
    _done.where(job.c.id.in_(LISTED), *IS_HELD_RANGE[1:]), "now", "ids", "of_fence", "of_token"
)
_SETTLED_COLUMNS = (
    *("id", "fence", "kind", "key", "attempts", "worker", "started_at", "dead_id"),
    *("state", "version", "payload", "headers", "ids", "sequence"),
)
_refund = case((job.c.started_at.is_not(None), bindparam("uncharge")), else_=sql_int(0))
# A job that was only claimed keeps its reason when it goes back.
_kept_reason: ColumnElement[Any] = func.coalesce(bindparam("why_dead"), job.c.reason)
_is_stopped = job.c.cancel_at.is_not(None)
SETTLE = compile_sqlite(
    update(job)
    .values(
        # A job that was cancelled while it ran is not retried, and makes no dead letter.
        state=case((_is_stopped, bindparam("if_stopped")), else_=bindparam("to_state")),
        attempts=job.c.attempts - _refund,
        crashes=job.c.crashes + bindparam("crashed"),
        due_at=bindparam("due"),
        lease_until=null(),
        ended_at=case((_is_stopped, bindparam("now")), else_=bindparam("ended")),
        reason=case((job.c.started_at.is_(None), _kept_reason), else_=bindparam("why")),
        error=bindparam("fault"),
        result=bindparam("answer"),
        signature=bindparam("alike"),
        waits_for=bindparam("signal"),
    )
    .where(*IS_HELD)
    .returning(*(job.c[name] for name in _SETTLED_COLUMNS)),
    *("if_stopped", "to_state", "uncharge", "crashed", "due", "now", "ended", "why_dead", "why"),
    *("fault", "answer", "alike", "signal"),
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
REPLAY_STOPPED = compile_sqlite(
    update(dead)
    .values(status=sql_text("pending"), job_id=bindparam("stopped"), updated_at=bindparam("now"))
    .where(dead.c.id == bindparam("of_id"))
    .returning(dead.c.kind, dead.c.signature),
    *("stopped", "now", "of_id"),
)
BUCKETS = {READY: "ready", DONE: "done", DEAD: "dead", CANCELLED: "cancelled"}


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
    if [each.result for each in done].count(None) == len(done):
        ranges = id_ranges(done)
        if len(ranges) <= MAX_STATEMENTS:
            counts = [run.execute(SETTLE_DONE_RANGE, (now, *ids)).rowcount for ids in ranges]
            return sum(counts) == len(done)
        claims: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for job_id, fence, token in map(lease_key, done):
            claims[fence, token].append(job_id)
        if len(claims) <= MAX_STATEMENTS:
            rows = [(now, json.dumps(ids), *claim) for claim, ids in claims.items()]
            return sum(run.execute(SETTLE_DONE_IDS, row).rowcount for row in rows) == len(done)
    results = [(now, each.result, *lease_key(each)) for each in done]
    return run.executemany(SETTLE_DONE, results).rowcount == len(done)


def settle(run: BatchRunner, settlements: Sequence[Settlement], now: int, /) -> SettleResult:
    """Settle one by one. Returns what became of the settlements."""
    late: list[Settlement] = []
    cancelled: list[Settlement] = []
    failures: list[tuple[FailureGroup, FailureDelta]] = []
    changes: dict[str, Counter[str]] = defaultdict(Counter)
    for settlement in settlements:
        state = _settle(run, settlement, now, failures)
        if state is None:
            late.append(settlement)
            changes[settlement.kind]["late"] += 1
        else:
            changes[settlement.kind].update({"leased": -1, BUCKETS[state]: 1})
            if state == CANCELLED:
                cancelled.append(settlement)
    add_all(run, changes)
    if failures:
        add_failures(run, merge_deltas(failures), now)
    return SettleResult(late, cancelled)


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


def _settle(
    run: BatchRunner,
    settlement: Settlement,
    now: int,
    failures: list[tuple[FailureGroup, FailureDelta]],
) -> int | None:
    """Settle one attempt. Return the state of its job, or None if it was too late.

    Args:
        run: The transaction.
        settlement: The settlement.
        now: The time.
        failures: Changes of the counters of failures. This adds to them.
    """
    states = {"done": DONE, "again": READY, "cancelled": CANCELLED}
    state = states.get(settlement.outcome, DEAD)
    due = now + int(settlement.after * MICROSECONDS)
    ended = None if state == READY else now
    reason, error = storable_text(settlement.reason), storable_text(settlement.error)
    why_dead = reason if state == DEAD else None
    if_stopped = DONE if state == DONE else CANCELLED
    crashed = int(reason == "crashed_process")
    values = (if_stopped, state, int(not settlement.charged), crashed, due, now, ended)
    signature = clip_signature(settlement.signature)
    reasons = (why_dead, reason, error, settlement.result, signature, settlement.waits_for)
    row = run.execute(SETTLE, (*values, *reasons, *lease_key(settlement))).fetchone()
    if row is None:
        return None
    job_id, fence, kind, key, attempts, worker, started, dead_id, state = row[:9]
    has_stopped = state == CANCELLED
    is_recorded = settlement.charged or error is not None or (has_stopped and started is not None)
    if state != DONE and is_recorded:
        outcome = CANCELLED_ATTEMPT if has_stopped else FAILED
        attempt_row = (job_id, fence, attempts, outcome, worker, reason, error, started, now)
        run.execute(INSERT_ATTEMPT, attempt_row)
    if has_stopped and dead_id is not None:
        letter = run.execute(REPLAY_STOPPED, (job_id, now, dead_id)).fetchone()
        if letter is not None:
            failures.append(((letter[0], letter[1] or ""), FailureDelta(pending=1)))
    if state not in (DONE, CANCELLED):
        failures.append(_failure_of(settlement))
    if state == DONE and dead_id is not None:
        run.execute(REPLAY_DONE, (now, dead_id))
    if state == DEAD:
        is_blocked = settlement.outcome == "blocked"
        until = None if settlement.until is None else to_micros(settlement.until)
        death = (reason, is_blocked, until, error, signature, attempts)
        if dead_id is not None:
            run.execute(REPLAY_DIED, (job_id, *death, started, now, dead_id))
        else:
            version, payload, headers, ids = row[9:13]
            content = (version, payload, headers, ids, *read_origin(headers))
            run.execute(INSERT_LETTER, (kind, key, job_id, *death, *content, started, now, now))
    sequence = row[13]
    if sequence is not None and state != READY:
        release(run, ((kind, sequence),))
    return int(state)
