"""Settle on Postgres: jobs, attempts, dead letters and counters in one statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    case,
    cast,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    update,
)

from ...db.compiled import (
    Runner,
    bytes_array,
    compile_postgres,
    int_array,
    sql_int,
    sql_text,
    text_array,
    timestamp_array,
    unnest,
)
from ...db.tables import attempt, dead, failure_delta, job, tally_delta
from ...events import SOURCE, SOURCE_ID
from ...model import (
    CANCELLED,
    CANCELLED_ATTEMPT,
    DEAD,
    DONE,
    FAILED,
    LEASED,
    READY,
    Settlement,
    SettleResult,
    lease_key,
)
from ...stats.failure_groups import MAX_SIGNATURE_CHARS, clip_signature
from ...validation import storable_text
from .claim import IS_LEASED
from .counters import add
from .sequences import release
from .submit import SECOND

_new = unnest(
    "new",
    id=BigInteger(),
    fence=Integer(),
    token=BigInteger(),
    state=SmallInteger(),
    after=Float(53),
    charged=Boolean(),
    result=LargeBinary(),
    reason=Text(),
    error=Text(),
    signature=Text(),
    blocked=Boolean(),
    until=DateTime(timezone=True),
    waits_for=Text(),
)
# A job that was cancelled while it ran is not retried, and makes no dead letter.
_is_stopped = job.c.cancel_at.is_not(None) & (_new.c.state != sql_int(DONE))
_state = case((_is_stopped, sql_int(CANCELLED)), else_=_new.c.state)
_is_returned = job.c.started_at.is_(None) & (_new.c.state == sql_int(READY))
_is_refunded = ~_new.c.charged & job.c.started_at.is_not(None)
_is_crash = _new.c.reason == sql_text("crashed_process")
_SETTLED_COLUMNS = (
    *("id", "fence", "token", "state", "kind", "key", "attempts", "worker", "started_at"),
    *("dead_id", "version", "payload", "headers", "ids", "reason", "error"),
    "sequence",
)
_settled = (
    update(job)
    .values(
        state=_state,
        attempts=job.c.attempts - case((_is_refunded, sql_int(1)), else_=sql_int(0)),
        crashes=job.c.crashes + case((_is_crash, sql_int(1)), else_=sql_int(0)),
        due_at=case(
            (_state == sql_int(READY), func.now() + _new.c.after * SECOND), else_=job.c.due_at
        ),
        lease_until=null(),
        ended_at=case((_state > sql_int(LEASED), func.now())),
        # A job that was only claimed keeps its reason when it goes back.
        reason=case((_is_returned, job.c.reason), else_=_new.c.reason),
        error=_new.c.error,
        signature=_new.c.signature,
        result=_new.c.result,
        waits_for=_new.c.waits_for,
    )
    .where(
        job.c.id == _new.c.id, job.c.fence == _new.c.fence, job.c.token == _new.c.token, IS_LEASED
    )
    .returning(
        *(job.c[name] for name in _SETTLED_COLUMNS),
        _new.c.charged,
        _new.c.signature,
        _new.c.blocked,
        _new.c.until,
    )
    .cte("settled")
)
_it = _settled.c
_has_stopped = _it.state == sql_int(CANCELLED)
_is_recorded = or_(_it.charged, _it.error.is_not(None), _has_stopped & _it.started_at.is_not(None))
_attempts = (
    insert(attempt)
    .from_select(
        [
            *("job_id", "fence", "number", "outcome", "worker"),
            *("reason", "error", "started_at", "ended_at"),
        ],
        select(
            _it.id,
            _it.fence,
            _it.attempts,
            case((_has_stopped, sql_text(CANCELLED_ATTEMPT)), else_=sql_text(FAILED)),
            _it.worker,
            _it.reason,
            _it.error,
            _it.started_at,
            func.now(),
        ).where(_it.state != sql_int(DONE), _is_recorded),
    )
    .cte("attempts")
)


def _header(name: str) -> ColumnElement[str]:
    return func.json_extract_path_text(cast(_it.headers, JSON), sql_text(name), type_=Text)


_letter_values = {
    **{name: _it[name] for name in ("kind", "key", "reason", "blocked", "error", "signature")},
    **{name: _it[name] for name in ("attempts", "version", "payload", "headers", "ids")},
    "job_id": _it.id,
    "blocked_until": _it.until,
    "last_attempt_at": _it.started_at,
    "created_at": func.now(),
    "updated_at": func.now(),
    "source": _header(SOURCE),
    "source_id": _header(SOURCE_ID),
}
_letters = (
    insert(dead)
    .from_select(
        list(_letter_values),
        select(*_letter_values.values()).where(_it.state == sql_int(DEAD), _it.dead_id.is_(None)),
    )
    .cte("letters")
)
_died = _it.state == sql_int(DEAD)
_replayed = (
    update(dead)
    .values(
        status=case((_died | _has_stopped, sql_text("pending")), else_=sql_text("replayed")),
        job_id=case((_died | _has_stopped, _it.id), else_=dead.c.job_id),
        reason=case((_died, _it.reason), else_=dead.c.reason),
        blocked=case((_died, _it.blocked), else_=dead.c.blocked),
        blocked_until=case((_died, _it.until), else_=dead.c.blocked_until),
        error=case((_died, _it.error), else_=dead.c.error),
        signature=case((_died, _it.signature), else_=dead.c.signature),
        attempts=case((_died, _it.attempts), else_=dead.c.attempts),
        last_attempt_at=case((_died, _it.started_at), else_=dead.c.last_attempt_at),
        updated_at=func.now(),
    )
    .where(dead.c.id == _it.dead_id, _it.state > sql_int(LEASED))
    .returning(dead.c.kind, dead.c.signature, _it.state)
    .cte("replayed")
)
_counted = (
    insert(tally_delta)
    .from_select(
        ["kind", "ready", "leased", "done", "dead", "cancelled"],
        select(
            _it.kind,
            func.count().filter(_it.state == sql_int(READY)),
            -func.count(),
            func.count().filter(_it.state == sql_int(DONE)),
            func.count().filter(_died),
            func.count().filter(_has_stopped),
        ).group_by(_it.kind),
    )
    .cte("counted")
)
_is_blocked = _died & _it.blocked
_first_line = func.split_part(_it.error, literal_column("E'\\n'"), sql_int(1))
_failed = (
    insert(failure_delta)
    .from_select(
        ["kind", "signature", "tries", "died", "pending", "blocked", "at", "job_id", "error"],
        select(
            _it.kind,
            func.coalesce(_it.signature, sql_text("")),
            func.count(_it.signature),
            func.count().filter(_died),
            func.count().filter(_died),
            func.count().filter(_is_blocked),
            func.now(),
            func.max(_it.id),
            func.max(func.left(_first_line, sql_int(MAX_SIGNATURE_CHARS))),
        )
        .where(
            _it.state.not_in((sql_int(DONE), sql_int(CANCELLED))),
            or_(_died, _it.signature.is_not(None)),
        )
        .group_by(_it.kind, func.coalesce(_it.signature, sql_text(""))),
    )
    .cte("failed")
)
# The dead letters of replays that were cancelled are pending again.
_back = _replayed.c
_returned = (
    insert(failure_delta)
    .from_select(
        ["kind", "signature", "pending", "at"],
        select(_back.kind, func.coalesce(_back.signature, sql_text("")), func.count(), func.now())
        .where(_back.state == sql_int(CANCELLED))
        .group_by(_back.kind, func.coalesce(_back.signature, sql_text(""))),
    )
    .cte("returned")
)
SETTLE = compile_postgres(
    select(_it.id, _it.fence, _it.token, _it.kind, _it.sequence, _it.state).add_cte(
        _attempts, _letters, _replayed, _counted, _failed, _returned
    )
)


def settle(
    run: Runner, settlements: Sequence[Settlement], /, *, in_caller: bool = False
) -> SettleResult:
    """Settle, and release the next jobs of their sequences.

    Args:
        run: With sequences, it has an open transaction.
        settlements: The settlements.
        in_caller: The transaction is the caller's.

    Returns:
        What became of the settlements.
    """
    # Of two settlements for one lease the first one counts. Postgres would choose either.
    first = {lease_key(each): each for each in reversed(settlements)}
    # Sorted, so that concurrent transactions cannot deadlock.
    parameters = _arrays([first[lease] for lease in sorted(first)])
    rows = run.execute(SETTLE, parameters).fetchall()
    settled = {(row[0], row[1], row[2]): row[5] for row in rows}
    ended = {(row[3], row[4]) for row in rows if row[4] is not None and row[5] > LEASED}
    release(run, ended, in_caller=in_caller)
    late = [
        each
        for each in settlements
        if (key := lease_key(each)) not in settled or first[key] is not each
    ]
    count_late(run, late)
    cancelled = [first[key] for key, state in settled.items() if state == CANCELLED]
    return SettleResult(late, cancelled)


def count_late(run: Runner, late: Sequence[Settlement], /) -> None:
    """Count settlements that were too late."""
    for kind, count in Counter(each.kind for each in late).items():
        add(run, kind, late=count)


def _arrays(settlements: Sequence[Settlement]) -> dict[str, str]:
    states = {"done": DONE, "again": READY, "cancelled": CANCELLED}
    return {
        "new_id": int_array(each.job_id for each in settlements),
        "new_fence": int_array(each.fence for each in settlements),
        "new_token": int_array(each.token for each in settlements),
        "new_state": int_array(states.get(each.outcome, DEAD) for each in settlements),
        "new_after": int_array(each.after for each in settlements),
        "new_charged": int_array(each.charged for each in settlements),
        "new_result": bytes_array(each.result for each in settlements),
        "new_reason": text_array(storable_text(each.reason) for each in settlements),
        "new_error": text_array(storable_text(each.error) for each in settlements),
        "new_signature": text_array(clip_signature(each.signature) for each in settlements),
        "new_blocked": int_array(each.outcome == "blocked" for each in settlements),
        "new_until": timestamp_array(each.until for each in settlements),
        "new_waits_for": text_array(each.waits_for for each in settlements),
    }
