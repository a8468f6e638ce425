"""Stirs: whether there is anything for a control plane to do. One look: most of the time there is nothing."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Select, bindparam, func, select

from ..ledger.now import now_on
from ..ledger.partition_tables import work
from ..ledger.session import Session
from .ranges import CANCELLED, RUNNING


class Stirs(NamedTuple):
    """What there is."""

    lost: bool
    """Leases that have run out."""
    running: bool
    """Sweeps under way, of whatever datasets."""
    cancelled: bool
    """Sweeps whose queued work is still to be taken back."""


def _look(now: object) -> Select[bool, bool, bool]:
    lost = select(work.c.partition_id).where(work.c.lease_until.is_not(None), work.c.lease_until < now)
    return select(lost.exists(), RUNNING.order_by(None).exists(), CANCELLED.order_by(None).exists())


_ON_SQLITE, _ON_POSTGRES = _look(bindparam("now", type_=work.c.lease_until.type)), _look(func.now())


def stirs(session: Session, /) -> Stirs:
    """What there is now; nobody is held up."""
    found = session.core.execute(_ON_SQLITE, {"now": now_on(session)}) if session.sqlite else session.core.execute(_ON_POSTGRES)
    return Stirs._make(found.one())


def expired_for(session: Session, /) -> float:
    """Seconds since the first lease ran out; 0: none has."""
    first = session.core.execute(select(func.min(work.c.lease_until))).scalar()
    return 0.0 if first is None else max(0.0, float((now_on(session) - first).total_seconds()))
