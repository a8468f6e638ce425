"""Sources: paused when a fault is everybody's, so that nobody is charged for it; then one probe goes first."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, select, update

from ..journal.bus import emit
from ..ledger import audit
from ..ledger.limits import words
from ..ledger.now import now_on
from ..ledger.partition_tables import partition, range_, run, source
from ..ledger.session import Session
from ..ledger.tables import sweep
from .pace import pause_of
from .policy import Policy
from .record import Judged, Run, Source, Verdict
from .rows import HELD, POLICY, Held, hold_sources

OPEN = {"paused_at": None, "paused_until": None, "because": None, "actor": None, "signature": None, "probes": 0}


def resting(connection: Connection, ids: Collection[int], /) -> list[str]:
    """Those sources of these partitions that the policy has paused."""
    paused = (
        connection.execute(select(source.c.source).where(source.c.paused_at.is_not(None), source.c.actor == POLICY))
        .scalars()
        .all()
    )
    if not paused:  # nearly always
        return []
    mine = set(connection.execute(select(partition.c.source).where(partition.c.id.in_(ids)).distinct()).scalars())
    return sorted(mine.intersection(paused))


class Answer(NamedTuple):
    """A verdict that was given its effect, and its run."""

    judged: Judged
    said: Verdict
    run: Run
    policy: Policy


def answered(session: Session, held: Mapping[str, Held], answers: Sequence[Answer], now: datetime, /) -> None:
    """What verdicts mean for paused sources. Data ends a pause; a probe that brought none is followed by another."""
    for one in answers:
        name = one.judged.partition.source if one.judged.partition else ""
        was = held.get(name)
        if was is None or was.paused_at is None or was.actor != POLICY:
            continue
        is_probe = one.run.leased_at > was.paused_at
        if one.judged.outcome == "accepted" or (is_probe and one.said.manifest is not None):
            opened_again(session, name, now)
        elif is_probe and one.said.signature is not None and one.said.charged:
            key = str(one.judged.partition)
            rest(session, was, one.policy, now, partition=key, error=one.said.message, after=None, signature=one.said.signature)
        elif is_probe:
            # The partition's own failure says nothing of the source: the next probe goes at once.
            session.core.execute(update(source).where(source.c.source == name).values(paused_until=now, updated_at=now))
        else:
            continue
        held = {other: row for other, row in held.items() if other != name}


def spared(held: Mapping[str, Held], name: str, said: Verdict, run: Run, /) -> bool:
    """Whether a verdict is none: evidence of the outage that its source is paused for, or from its probe.

    A probe that is refused while the source is paused for something else says that the source responds.
    """
    was = held.get(name)
    if said.signature is None or said.charged or was is None or was.paused_at is None or was.actor != POLICY:
        return False
    return said.signature == was.signature or (run.leased_at > was.paused_at and not said.shared)


def is_only_customer(connection: Connection, name: str, customer: str, /) -> bool:
    """Whether a source has no other customer: in its partitions, nor in ranges that have not ended."""
    at = partition.c
    other = select(at.id).where(at.source == name, at.customer_id != customer).limit(1)
    if connection.execute(other).first() is not None:
        return False
    ranges = (
        select(range_.c.datasets, range_.c.customers)
        .join(sweep, sweep.c.id == range_.c.sweep_id)
        .where(sweep.c.state.in_(("running", "paused", "halted")), range_.c.customers.is_not(None))
    )
    return not any(
        set(json.loads(customers)) - {customer}
        for datasets, customers in connection.execute(ranges)
        if any(of == name for of, _ in json.loads(datasets))
    )


def opened_again(session: Session, name: str, now: datetime, /, *, actor: str | None = None) -> None:
    """Start extractions of this source again.

    actor: who unpaused it, which workers log. None: nobody, it responds.
    """
    emit("unparked", {"operation": name} | ({} if actor is None else {"actor_key": actor}))
    values = OPEN | {"actor": actor, "updated_at": now}
    session.core.execute(update(source).where(source.c.source == name).values(values))


def rest(
    session: Session, held: Held, policy: Policy, now: datetime, /, *, partition: str, error: str | None, after: float | None,
    signature: str | None,
) -> None:  # fmt: skip
    """A fault that is everybody's: pause the source, each time for longer. One that a person paused stays as it is."""
    if held.paused_at is not None and held.actor != POLICY:
        return
    if held.paused_until is not None and held.paused_until > now and held.probes == 0:
        return  # it rests already, and this one had begun before
    seconds = pause_of(policy, held.probes, after)
    what = {"source": held.source, "seconds": round(seconds), "signature": signature, "partition": partition}
    because = words(error) or "a fault of the whole source"
    _set(session, held.source, now, now + timedelta(seconds=seconds), because, POLICY, signature)
    audit.write(session, actor=POLICY, action="source.pause", because=because, what=what)
    emit("parked", {"operation": held.source, "reason": because.partition("\n")[0], "wait": seconds})


def lose_probes(session: Session, held: Mapping[str, Held], run_ids: Collection[str], now: datetime, /) -> None:
    """If one of these lost runs was the probe of its source, the next probe goes at once."""
    began = select(partition.c.source, run.c.leased_at).join(partition, partition.c.id == run.c.partition_id)
    for name, leased_at in session.core.execute(began.where(run.c.run_id.in_(list(run_ids)))):
        was = held.get(name)
        if was is not None and was.paused_at is not None and leased_at > was.paused_at:
            session.core.execute(update(source).where(source.c.source == name).values(paused_until=now, updated_at=now))


def probing(session: Session, name: str, until: datetime, now: datetime, /) -> None:
    """A probe goes out: nobody else before it is back, or lost."""
    values = {"paused_until": until, "probes": source.c.probes + 1, "updated_at": now}
    session.core.execute(update(source).where(source.c.source == name).values(values))


def room(held: Held, now: datetime, /) -> int | None:
    """How many may start because of a pause; None: any number."""
    if held.paused_at is None:
        return None
    if held.paused_until is None or held.paused_until > now:
        return 0
    return 1 if held.actor == POLICY else None  # a person said when, and needs no probe


def pause(session: Session, name: str, until: datetime | None, actor: str, because: str, /) -> Source:
    """Start nothing of this source. until: by itself after that, with one probe; None: until somebody says so."""
    audit.said(actor, because)
    now = now_on(session)
    hold_sources(session, [name], now)
    _set(session, name, now, until, because, actor, None)
    what = {"source": name, "until": audit.stamp(until)}
    audit.write(session, actor=actor, action="source.pause", because=because, what=what)
    return listed(session.core, name)[0]


def unpause(session: Session, name: str, actor: str, because: str, /) -> Source:
    """Let its work go on."""
    audit.said(actor, because)
    now = now_on(session)
    hold_sources(session, [name], now)
    opened_again(session, name, now, actor=actor)
    audit.write(session, actor=actor, action="source.unpause", because=because, what={"source": name})
    return listed(session.core, name)[0]


def listed(connection: Connection, name: str | None = None, /) -> list[Source]:
    """All that are known, or one."""
    query = select(*HELD).order_by(source.c.source)
    if name is not None:
        query = query.where(source.c.source == name)
    rows = [Held._make(row) for row in connection.execute(query)]
    return [
        Source(
            row.source,
            row.paused_at is not None,
            row.paused_until,
            row.because,
            None if row.paused_at is None else row.actor,
            row.probes,
            row.probes > 0,
        )
        for row in rows
    ]


def _set(
    session: Session, name: str, now: datetime, until: datetime | None, because: str, actor: str, signature: str | None
) -> None:
    values = {"paused_at": now, "paused_until": until, "because": because, "actor": actor, "signature": signature}
    session.core.execute(update(source).where(source.c.source == name).values(**values, updated_at=now))
