"""Failures alike, counted on Postgres: each change is a row of its own, as with the tallies."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import bindparam, func, insert

from ...db.compiled import Runner, postgres
from ...db.failure_tables import FAILURES, failure_delta
from ...stats.failure_deltas import Alike, Failed

_NAMES = ("kind", "signature", *FAILURES, "job_id", "error")
ADD = postgres(insert(failure_delta).values({**{name: bindparam(name) for name in _NAMES}, "at": func.now()})).text


def add(run: Runner, changes: Mapping[Alike, Failed], /) -> None:
    """Add to what is counted of failures alike."""
    for (kind, signature), one in changes.items():
        run.execute(ADD, {"kind": kind, "signature": signature, **one._asdict()})
