"""Runs: each attempt at a partition, with the verdict on it. Read only: who writes them is the claim and the verdict."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from ..ledger.partition_tables import partition, run, verdict
from .among import Among
from .record import DAMAGED, LANES, Run, Verdict

_COLUMNS = (
    "partition_id",
    "attempt_no",
    "run_id",
    "raw_run_id",
    "kind",
    "state",
    "lane",
    "worker",
    "sweep_id",
    "leased_at",
    "ended_at",
    "note",
)
_VERDICT = ("decision", "validator", "version", "checks", "record_count", "reason", "message", "manifest", "at")
_RUN = select(*(run.c[name] for name in _COLUMNS))
_THESE = Among(run.c.run_id, _RUN.where)
_JOINED = select(
    *(run.c[name] for name in _COLUMNS), *(verdict.c[name].label(f"verdict_{name}") for name in _VERDICT)
).select_from(run.outerjoin(verdict, verdict.c.run_id == run.c.run_id))

_CURRENT = select(partition.c.id, partition.c.current_raw_id, partition.c.last_verdict)
_VALIDATED = (
    select(run.c.partition_id, run.c.raw_run_id, run.c.state, verdict.c.manifest)
    .join(verdict, verdict.c.run_id == run.c.run_id)
    .order_by(run.c.partition_id, run.c.attempt_no)
)


def found(connection: Connection, run_ids: Collection[str], /) -> list[Run]:
    """These runs, without their verdicts."""
    return [_run(dict(zip(_COLUMNS, row, strict=True))) for row in _THESE.rows(connection, run_ids)]


def whole(connection: Connection, run_id: str, /) -> Run | None:
    """A run, with the verdict on it; None: there is none."""
    row = connection.execute(_JOINED.where(run.c.run_id == run_id)).mappings().first()
    return None if row is None else _run(row)


def history(connection: Connection, partition_id: int, /, *, before: int | None = None, limit: int = 100) -> list[Run]:
    """The runs of a partition, the newest first. before: an attempt_no."""
    query = _JOINED.where(run.c.partition_id == partition_id).order_by(run.c.attempt_no.desc()).limit(limit)
    if before is not None:
        query = query.where(run.c.attempt_no < before)
    return [_run(row) for row in connection.execute(query).mappings()]


def damaged(connection: Connection, partition_id: int, raw_run_id: str, /) -> Run | None:
    """The last one that judged this raw data, if its verdict was that it is not what was written."""
    query = _JOINED.where(run.c.partition_id == partition_id, run.c.raw_run_id == raw_run_id, verdict.c.run_id.is_not(None))
    row = connection.execute(query.order_by(run.c.attempt_no.desc()).limit(1)).mappings().first()
    return None if row is None or row["verdict_reason"] != DAMAGED else _run(row)


def to_validate(connection: Connection, ids: Collection[int], /) -> dict[int, str]:
    """The run whose raw data a revalidation of each partition reads; partitions without validated raw data are left out.

    That is the current run, whatever newer data an operator rolled back. Where the newest verdict is a rejection, it is the
    rejected run: its checks may have been too strict. Without either, it is the newest run whose raw data was validated.
    """
    mine = list(ids)
    at = partition.c
    current = {row[0]: row[1:] for row in connection.execute(_CURRENT.where(at.id.in_(mine)))}
    verdicts: dict[int, list[_Validated]] = {}
    for row in connection.execute(_VALIDATED.where(run.c.partition_id.in_(mine))):
        verdicts.setdefault(row[0], []).append(_Validated._make(row[1:]))
    chosen = {id_: _chosen(*standing, verdicts.get(id_, ())) for id_, standing in current.items()}
    return {id_: run_id for id_, run_id in chosen.items() if run_id is not None}


class _Validated(NamedTuple):
    """A run with a verdict, as far as the choice depends on it."""

    raw_run_id: str
    state: str
    manifest: str | None


def _chosen(current_raw_id: str | None, last_verdict: str | None, verdicts: Sequence[_Validated]) -> str | None:
    """Pure. verdicts: oldest first."""
    if current_raw_id is None:
        return next((one.raw_run_id for one in reversed(verdicts) if one.manifest is not None), None)
    newest = next((one for one in reversed(verdicts) if one.state != "late"), None)
    if last_verdict == "rejected" and newest is not None and newest.state == "rejected" and newest.manifest is not None:
        return newest.raw_run_id
    return current_raw_id


def _run(row: Any) -> Run:
    said = None
    if row.get("verdict_decision") is not None:
        said = Verdict(
            row["run_id"], row["verdict_decision"], row["verdict_validator"], row["verdict_version"],
            tuple(json.loads(row["verdict_checks"])), row["verdict_record_count"], row["verdict_reason"], row["verdict_message"],
            row["verdict_manifest"],
        )  # fmt: skip
    fields = {name: row[name] for name in _COLUMNS} | {"lane": LANES[row["lane"]], "sweep_id": row["sweep_id"] or None}
    return Run(**fields, verdict=said, verdict_at=row.get("verdict_at"))
