"""Problems of partitions: wrong counts, paused sources, partitions that gave up, missing raw data."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from ...core.text import pluralise
from ...errors import StorageError
from ..partitions.datasets import extractions, label
from ..partitions.lost import missing, side_by_side
from ..partitions.overview import paused_by
from ..target.target import ledger_of
from .finding import Finding

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...partitions.datasets.definition import Extraction
    from ...partitions.key import Partition
    from ..target.target import Operated

GRACE = timedelta(seconds=60)
"""For which what is overdue may be so: workers look now and then."""
LOOKED = 50
"""Current runs that are checked from either end of each dataset: checking millions would take hours."""
NAMED = 3
"""Partitions that a finding names."""


def rollups(ledger: Ledger, /) -> Iterator[Finding]:
    """The calendar against the rows."""
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    wrong = Register(ledger).imbalance()
    if wrong:
        says = f"Calendar: its counts do not match the partitions ({'; '.join(wrong[:5])})"
        mend = "find the program that wrote to these tables without Redrive, and compare with a backup"
        yield Finding("calendar", "critical", says, len(wrong), None, mend, False)


def paused(ledger: Ledger, /) -> Iterator[Finding]:
    """Sources whose partitions are not started."""
    from ...partitions.queries import Register  # noqa: PLC0415  # the same

    for one in Register(ledger).sources():
        if one.paused:
            says = f"Source {one.source}: paused {paused_by(one.until, one.actor or '')} ({one.because})"
            mend = f'redrive state unpause {shlex.quote(one.source)} --whole-source --because "..."'
            yield Finding("source paused", "warning", says, 1, None, mend)


def leases(ledger: Ledger, /) -> Iterator[Finding]:
    """Extractions with an expired lease that no worker recovered."""
    from sqlalchemy import func, select  # noqa: PLC0415  # the same

    from ...ledger.db.partition_tables import work  # noqa: PLC0415

    over = ledger.now() - GRACE
    with ledger.reading() as connection:
        query = select(func.count(), func.min(work.c.lease_until)).where(work.c.lease_until < over)
        many, since = connection.execute(query).one()
    if many:
        says = f"Extractions: {many:,} with an expired lease; no worker is checking this ledger"
        yield Finding("dangling extractions", "critical", says, many, since, "redrive work module:app", False)


def given_up(ledger: Ledger, /) -> Iterator[Finding]:
    """Partitions that gave up: no worker retries them until a person does."""
    from ...partitions.queries import Register  # noqa: PLC0415  # the same

    counts = {label(*name): shades.get("terminal", 0) for name, shades in Register(ledger).counts().items()}
    most = sorted((pair for pair in counts.items() if pair[1]), key=lambda pair: -pair[1])
    if most:
        named = ", ".join(f"{count:,} {name}" for name, count in most[:NAMED]) + (", …" if len(most) > NAMED else "")
        many = sum(count for _, count in most)
        says = f"Partitions: {many:,} gave up ({named}) and {'is' if many == 1 else 'are'} not retried"
        yield Finding("partitions given up", "warning", says, many, None, "redrive state failures --terminal")


def lost(app: Operated, /) -> Iterator[Finding]:
    """Current runs whose raw data is missing or has another size. Nothing for a bare ledger, which has no stores."""
    for extraction in extractions(app):
        chosen = _in_force(ledger_of(app), *extraction.terms.dataset)
        try:
            said = side_by_side(partial(_missing, extraction), chosen)
        except StorageError as problem:
            says = f"{extraction.name}: raw data cannot be checked ({problem})"
            yield Finding("raw data", "warning", says, 1, None, "redrive storage check", False)
            continue
        gone = [str(one) for (one, _), says in zip(chosen, said, strict=True) if says is not None]
        if gone:
            some = ", ".join(gone[:NAMED]) + (", …" if len(gone) > NAMED else "")
            checked = pluralise(len(chosen), "checked run")
            says = f"{extraction.name}: raw data missing or changed in {len(gone):,} of {checked} ({some})"
            every = f"redrive state inspect {shlex.quote(extraction.name)} --lost"
            mend = f'redrive state reprocess {shlex.quote(gone[0])} --because "..."' if len(gone) == 1 else every
            yield Finding("raw data", "critical", says, len(gone), None, mend)


def _missing(extraction: Extraction, one: tuple[Partition, str]) -> str | None:
    return missing(extraction, *one)


def _in_force(ledger: Ledger, source: str, query: str) -> list[tuple[Partition, str]]:
    """The oldest of them, which rules for old files take first, and the newest."""
    from sqlalchemy import select  # noqa: PLC0415  # the same

    from ...ledger.db.partition_tables import partition  # noqa: PLC0415
    from ...partitions.key import Partition  # noqa: PLC0415

    of = partition.c
    query_ = select(of.source, of.customer_id, of.query_name, of.logical_date, of.current_raw_id).where(
        of.source == source, of.query_name == query, of.current_raw_id.is_not(None)
    )
    found: dict[Partition, str] = {}
    with ledger.reading() as connection:
        for order in (of.logical_date, of.logical_date.desc()):
            for row in connection.execute(query_.order_by(order).limit(LOOKED)):
                found[Partition(*row[:4])] = row[4]
    return list(found.items())
