"""Settle on Postgres, whatever became of the attempts: one statement, with their rows and dead letters."""

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

from ...db.compiled import Runner, number, postgres, rows
from ...db.compiled import words as word
from ...db.failure_tables import failure_delta
from ...db.tables import attempt, dead, job, tally_delta
from ...events import SOURCE, SOURCE_ID
from ...record import Settlement, lease_name
from ...state import DEAD, DONE, FAILED, LEASED, READY
from ...stats.failure_deltas import LONGEST, alike
from ...validation import words
from .arrays import blobs, moments, plain, texts
from .claim import HELD
from .counters import add
from .submit import SECOND

_one = rows(
    "one", id=BigInteger(), fence=Integer(), token=BigInteger(), state=SmallInteger(), after=Float(53), charged=Boolean(),
    result=LargeBinary(), reason=Text(), error=Text(), signature=Text(), blocked=Boolean(), until=DateTime(timezone=True),
)  # fmt: skip
_settled = (
    update(job)
    .values(
        state=_one.c.state,
        attempts=job.c.attempts - case((~_one.c.charged & job.c.started_at.is_not(None), number(1)), else_=number(0)),
        due_at=case((_one.c.state == number(READY), func.now() + _one.c.after * SECOND), else_=job.c.due_at),
        lease_until=null(),
        ended_at=case((_one.c.state > number(LEASED), func.now())),
        # What was only claimed, and is given back, is as it was.
        reason=case((job.c.started_at.is_(None) & (_one.c.state == number(READY)), job.c.reason), else_=_one.c.reason),
        error=_one.c.error,
        result=_one.c.result,
    )
    .where(job.c.id == _one.c.id, job.c.fence == _one.c.fence, job.c.token == _one.c.token, HELD)
    .returning(
        job.c.id, job.c.fence, job.c.token, job.c.state, job.c.kind, job.c.key, job.c.attempts, job.c.worker,
        job.c.started_at, job.c.dead_id, job.c.version, job.c.payload, job.c.headers, job.c.ids, job.c.reason, job.c.error,
        _one.c.charged, _one.c.signature, _one.c.blocked, _one.c.until,
    )
    .cte("settled")
)  # fmt: skip
_it = _settled.c
_attempts = (
    insert(attempt)
    .from_select(
        ["job_id", "fence", "number", "outcome", "worker", "reason", "error", "started_at", "ended_at"],
        select(
            _it.id, _it.fence, _it.attempts, word(FAILED), _it.worker, _it.reason, _it.error, _it.started_at, func.now()
        ).where(_it.state != number(DONE), or_(_it.charged, _it.error.is_not(None))),
    )
    .cte("attempts")
)


def _header(name: str) -> ColumnElement[str]:
    return func.json_extract_path_text(cast(_it.headers, JSON), word(name), type_=Text)


_letters = (
    insert(dead)
    .from_select(
        [
            "kind", "key", "job_id", "reason", "blocked", "blocked_until", "error", "signature", "attempts", "version",
            "payload", "headers", "ids", "last_attempt_at", "created_at", "updated_at", "source", "source_id",
        ],
        select(
            _it.kind, _it.key, _it.id, _it.reason, _it.blocked, _it.until, _it.error, _it.signature, _it.attempts, _it.version,
            _it.payload, _it.headers, _it.ids, _it.started_at, func.now(), func.now(), _header(SOURCE), _header(SOURCE_ID),
        ).where(_it.state == number(DEAD), _it.dead_id.is_(None)),
    )
    .cte("letters")
)  # fmt: skip
_died = _it.state == number(DEAD)
_replayed = (
    update(dead)
    .values(
        status=case((_died, word("pending")), else_=word("replayed")),
        job_id=case((_died, _it.id), else_=dead.c.job_id),
        reason=case((_died, _it.reason), else_=dead.c.reason),
        blocked=case((_died, _it.blocked), else_=dead.c.blocked),
        blocked_until=case((_died, _it.until), else_=dead.c.blocked_until),
        error=case((_died, _it.error), else_=dead.c.error),
        signature=case((_died, _it.signature), else_=dead.c.signature),
        attempts=case((_died, _it.attempts), else_=dead.c.attempts),
        last_attempt_at=case((_died, _it.started_at), else_=dead.c.last_attempt_at),
        updated_at=func.now(),
    )
    .where(dead.c.id == _it.dead_id, _it.state > number(LEASED))
    .cte("replayed")
)
_counted = (
    insert(tally_delta)
    .from_select(
        ["kind", "ready", "leased", "done", "dead"],
        select(
            _it.kind,
            func.count().filter(_it.state == number(READY)),
            -func.count(),
            func.count().filter(_it.state == number(DONE)),
            func.count().filter(_died),
        ).group_by(_it.kind),
    )
    .cte("counted")
)
_is_blocked = _died & _it.blocked
_failed = (
    insert(failure_delta)
    .from_select(
        ["kind", "signature", "tries", "died", "pending", "blocked", "at", "job_id", "error"],
        select(
            _it.kind,
            func.coalesce(_it.signature, word("")),
            func.count(_it.signature),
            func.count().filter(_died),
            func.count().filter(_died),
            func.count().filter(_is_blocked),
            func.now(),
            func.max(_it.id),
            func.max(func.left(func.split_part(_it.error, literal_column("E'\\n'"), number(1)), number(LONGEST))),
        )
        .where(_it.state != number(DONE), or_(_died, _it.signature.is_not(None)))
        .group_by(_it.kind, func.coalesce(_it.signature, word(""))),
    )
    .cte("failed")
)
SETTLE = postgres(select(_it.id, _it.fence, _it.token).add_cte(_attempts, _letters, _replayed, _counted, _failed)).text


def settle(run: Runner, settlements: Sequence[Settlement], /) -> list[Settlement]:
    """Settle each; the ones that came too late, which changed nothing."""
    # Of two for one lease the first one counts; given both, Postgres would take either.
    first = {lease_name(one): one for one in reversed(settlements)}
    # Sorted: two transactions that settle the same jobs in opposite order would wait for each other.
    given = _arrays([first[lease] for lease in sorted(first)])
    settled = {(row[0], row[1], row[2]) for row in run.execute(SETTLE, given).fetchall()}
    return counted_late(run, [one for one in settlements if (name := lease_name(one)) not in settled or first[name] is not one])


def counted_late(run: Runner, late: list[Settlement], /) -> list[Settlement]:
    """Those that changed nothing are counted."""
    for kind, count in Counter(one.kind for one in late).items():
        add(run, kind, late=count)
    return late


def _arrays(settlements: Sequence[Settlement]) -> dict[str, str]:
    return {
        "one_id": plain(one.job_id for one in settlements),
        "one_fence": plain(one.fence for one in settlements),
        "one_token": plain(one.token for one in settlements),
        "one_state": plain({"done": DONE, "again": READY}.get(one.outcome, DEAD) for one in settlements),
        "one_after": plain(one.after for one in settlements),
        "one_charged": plain(one.charged for one in settlements),
        "one_result": blobs(one.result for one in settlements),
        "one_reason": texts(words(one.reason) for one in settlements),
        "one_error": texts(words(one.error) for one in settlements),
        "one_signature": texts(alike(one.signature) for one in settlements),
        "one_blocked": plain(one.outcome == "blocked" for one in settlements),
        "one_until": moments(one.until for one in settlements),
    }
