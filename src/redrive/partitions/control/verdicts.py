"""Authority: a verdict becomes what readers get. The only way to move `current_run_id`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from ...errors import NotAllowed
from ...ledger import audit
from ...ledger.db.clock import now_on
from ...ledger.db.partition_tables import verdict
from ...ledger.db.session import Session
from ...ledger.db.tables import sweep
from ...ledger.validation import storable_text
from ..key import Partition
from ..model import Facts, Judged, Run, Verdict
from ..retry_schedule import Policy, Terms, after_rejection
from ..status import Said, Standing, judged
from ..store.changes import Among
from ..store.queries import facts, found, known, whole
from ..store.rows import POLICY, Changes, Mark, Opened, Row, Work, hold_sources, locked, marks, opened, works
from .max_age import stored_age_limit
from .source_health import Answer, answered, resting, spared

_SAID = Among(verdict.c.run_id, select(verdict.c.run_id).where)
_ENDED = Among(sweep.c.id, select(sweep.c.id).where(sweep.c.state.in_(("cancelled", "done"))).where)
KNOWN = 2000
"""Characters of a message that the partition itself keeps; the verdict has it all."""


class Authority:
    """For a validator: gives its verdicts their effect. Threads may share one, and so may forked children. Its methods block."""

    def __init__(self, ledger: Opened, terms: Iterable[Terms], /, *, lock_seconds: float | None = None) -> None:
        """Prepare.

        Args:
            ledger: The ledger.
            terms: The datasets, for when a rejected partition is retried.
            lock_seconds: How long a transaction waits for a lock on Postgres. None: as long as a statement may take.
        """
        self._ledger = opened(ledger)
        self._lock_seconds = lock_seconds
        self._policies = {one.dataset: one.policy for one in terms}

    def judge(self, verdicts: Sequence[Verdict], /) -> list[Judged]:
        """Give these their effect, all or none; what each came to. A verdict that was given before changes nothing."""
        if not verdicts:
            return []
        with (
            self._ledger().connections.write.use() as session,
            session.transaction("partition.judge", lock_seconds=self._lock_seconds),
        ):
            return _judge(session, verdicts, self._policies)

    def rollback(self, partition: Partition, run_id: str, /, *, actor: str, because: str) -> Facts:
        """Back to an earlier run that was accepted. Whoever asks has seen that its raw data is there. NotAllowed otherwise."""
        audit.check_actor(actor, because)
        with self._ledger().connections.write.use() as session, session.transaction("partition.rollback"):
            return _rolled_back(session, partition, run_id, actor, because)


class _Of(NamedTuple):
    """What a batch of verdicts is about, as it was read."""

    connection: Connection
    runs: Mapping[str, Run]
    works: dict[int, Work]
    marks: Mapping[int, Mapping[str, Mark]]
    over: frozenset[int]
    """Sweeps that have ended: what was theirs is nobody's."""


def _judge(session: Session, verdicts: Sequence[Verdict], policies: Mapping[tuple[str, str], Policy]) -> list[Judged]:
    connection = session.core
    now = now_on(session)
    runs = {one.run_id: one for one in found(connection, [one.run_id for one in verdicts])}
    ids = sorted({one.partition_id for one in runs.values()})
    # Before the partitions, as everywhere: a source that was paused is well again if this one came from it.
    paused = resting(connection, ids)
    held = hold_sources(session, paused, now) if paused else {}
    was = locked(connection, ids)
    # Read after the lock: on Postgres a row that was joined would be as old as the wait.
    queued = works(connection, ids)
    of = _Of(connection, runs, queued, marks(connection, ids), _over(connection, {one.sweep_id for one in queued.values()} - {0}))
    said = {row[0] for row in _SAID.rows(connection, list(runs))}
    changes = Changes(was)
    told: list[Judged] = []
    rows: list[dict[str, Any]] = []
    for one in verdicts:
        if one.run_id not in runs:
            told.append(Judged(one.run_id, "unknown"))
        elif one.run_id in said:
            row = changes.row(runs[one.run_id].partition_id)
            told.append(Judged(one.run_id, "repeated", row.partition, row.attempt_count, row.status))
        elif spared(held, changes.row(runs[one.run_id].partition_id).source, one, runs[one.run_id]):
            row = changes.row(runs[one.run_id].partition_id)
            told.append(Judged(one.run_id, "spared", row.partition, row.attempt_count, row.status))
        else:
            said.add(one.run_id)
            told.append(_one(changes, of, one, policies, now))
            rows.append(_verdict(one, now))
    ended = [
        {"run_id": one.run_id, "state": one.outcome, "ended_at": now, "note": None}
        for one in told
        if one.outcome in ("accepted", "rejected", "late")
    ]
    changes.write(session, ended=ended, said=rows)
    if held:
        pairs = [(one, said_) for one, said_ in zip(told, verdicts, strict=True) if one.outcome in ("accepted", "rejected")]
        answers = [Answer(one, said_, runs[one.run_id], _policy_of(policies, one)) for one, said_ in pairs]
        answered(session, held, answers, now)
    return told


def _one(changes: Changes, of: _Of, one: Verdict, policies: Mapping[tuple[str, str], Policy], now: datetime) -> Judged:
    its = of.runs[one.run_id]
    row = changes.row(its.partition_id)
    work = changes.work.get(row.id, of.works.get(row.id))
    fenced = work is not None and work.leased and work.attempt_no == its.attempt_no and row.id not in changes.idle
    standing = Standing(
        row.status, row.current_run_id, row.current_raw_id, row.current_attempt_no, row.attempt_count, row.last_verdict
    )
    after, state = judged(standing, Said(one.decision, one.run_id, its.raw_run_id, its.attempt_no, fenced))
    row = row._replace(**after._asdict(), updated_at=now)
    if state == "late":
        changes.rows[row.id] = row
        return Judged(one.run_id, "late", row.partition, row.attempt_count, row.status)
    assert work is not None
    changes.ranges[work.sweep_id, "accepted" if state == "accepted" else "rejected"] += 1
    row = row._replace(verdict_at=now)
    if state == "accepted":
        changes.rows[row.id] = row._replace(record_count=one.record_count, reason=None, error=None).shaded(False)
        _accepted(changes, of, row, work)
        return Judged(one.run_id, "accepted", row.partition, row.attempt_count, row.status)
    row = row._replace(reason=storable_text(one.reason) or "rejected", error=_short(storable_text(one.message)))
    return _rejected(changes, of, row, work, one, policies.get(row.dataset, Policy()), now)


def _accepted(changes: Changes, of: _Of, row: Row, work: Work) -> None:
    changes.idle.add(row.id)
    changes.ranges[work.sweep_id, "ok"] += 1
    mark = of.marks.get(row.id, {}).get("terminal")
    if mark is not None and mark.cause != "manual":
        changes.unmark(row.id, "terminal")


def _rejected(changes: Changes, of: _Of, row: Row, work: Work, one: Verdict, policy: Policy, now: datetime) -> Judged:
    marked = of.marks.get(row.id, {})
    grant = marked.get("grant")
    attempts = row.attempt_count - (grant.attempts if grant else 0)
    limit = grant.amount if grant is not None and grant.amount is not None else policy.max_attempts
    then = after_rejection(policy, attempts, limit, work.seed, now, None, after=one.after, final=one.final)
    if then.due is not None and (ends := stored_age_limit(of.connection, policy, row, work, then.due)) is not None:
        then = after_rejection(policy, attempts, limit, work.seed, now, ends, after=one.after, final=one.final)
    over = (
        "paused" in marked or "terminal" in marked or then.due is None
        or (work.kind == "revalidate" and row.current_run_id is not None)
    )  # fmt: skip
    if then.terminal is not None and "terminal" not in marked and row.current_run_id is None:
        changes.mark(Mark(row.id, "terminal", then.terminal, POLICY, then.strategy, now, row.attempt_count, None))
    changes.rows[row.id] = row.shaded("terminal" in marked or (then.terminal is not None and row.current_run_id is None))
    if over:
        changes.idle.add(row.id)
        changes.ranges[work.sweep_id, "failed"] += 1
    else:
        assert then.due is not None
        lane = 1 if work.lane == 0 or work.sweep_id in of.over else work.lane
        swept = 0 if work.sweep_id in of.over or work.lane == 0 else work.sweep_id
        if work.sweep_id and not swept:
            changes.ranges[work.sweep_id, "failed"] += 1  # from here on the policy's, like any other
        again = work.released(then.due, then.strategy)
        changes.work[row.id] = again._replace(
            lane=lane,
            sweep_id=swept,
            queued_at=now,
            lost=0,
            raw_run_id=None,
            kind="retry" if row.current_run_id is None else "reprocess",
        )
    return Judged(
        one.run_id, "rejected", row.partition, row.attempt_count, row.status, None if over else then.due,
        then.terminal if row.current_run_id is None else None,
    )  # fmt: skip


def _rolled_back(session: Session, key: Partition, run_id: str, actor: str, because: str) -> Facts:
    connection = session.core
    now = now_on(session)
    row = known(connection, key)
    if row is None:
        raise NotAllowed(f"nothing is stored of {key}: there is no run to go back to")
    row = locked(connection, [row.id])[row.id]
    to = whole(connection, run_id)
    if to is None or to.partition_id != row.id:
        raise NotAllowed(f"{key}: no run {run_id}; `redrive state history {key}` lists its runs")
    if to.verdict is None or to.verdict.decision != "accepted":
        raise NotAllowed(f"run {run_id} of {key} is {to.state}: one can go back to an accepted run only")
    if row.current_run_id == run_id:
        raise NotAllowed(f"run {run_id} of {key} is already the current run")
    changes = Changes({row.id: row})
    changes.rows[row.id] = row._replace(
        status="success", current_run_id=run_id, current_raw_id=to.raw_run_id, current_attempt_no=to.attempt_no,
        record_count=to.verdict.record_count, last_verdict="accepted", reason=None, error=None, updated_at=now,
    ).shaded(False)  # fmt: skip
    changes.write(session)
    what = {"partition": str(key), "from": row.current_run_id, "to": run_id}
    audit.write(session, actor=actor, action="partition.rollback", because=because, what=what)
    return facts(connection, [row.id])[0]


def _over(connection: Connection, sweeps: Collection[int]) -> frozenset[int]:
    return frozenset(row[0] for row in _ENDED.rows(connection, sweeps)) if sweeps else frozenset()


def _policy_of(policies: Mapping[tuple[str, str], Policy], one: Judged) -> Policy:
    key = one.partition
    return Policy() if key is None else policies.get((key.source, key.query_name), Policy())


def _verdict(one: Verdict, now: datetime) -> dict[str, Any]:
    return {
        "run_id": one.run_id, "decision": one.decision, "validator": one.validator, "version": one.version,
        "checks": json.dumps([dict(check) for check in one.checks], default=str), "record_count": one.record_count,
        "reason": storable_text(one.reason), "message": storable_text(one.message), "manifest": one.manifest, "at": now,
    }  # fmt: skip


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= KNOWN else text[:KNOWN] + " …"
