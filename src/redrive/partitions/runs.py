"""Runs: each attempt at a partition, with the verdict on it. Read only: who writes them is the claim and the verdict."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, select

from ..ledger.partition_tables import run, verdict
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


def with_raw(connection: Connection, ids: Collection[int], /) -> dict[int, str]:
    """Of each of these partitions the newest run whose raw data was judged; those without any are left out."""
    query = (
        select(run.c.partition_id, run.c.raw_run_id)
        .join(verdict, verdict.c.run_id == run.c.run_id)
        .where(run.c.partition_id.in_(list(ids)), verdict.c.manifest.is_not(None))
        .order_by(run.c.partition_id, run.c.attempt_no)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


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
