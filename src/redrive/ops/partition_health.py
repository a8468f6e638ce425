"""What can be wrong with partitions: counts that don't balance, sources that rest, raw data that is gone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from ..core.amount import amount
from ..errors import StorageError
from .datasets import extractions
from .finding import Finding
from .lost import missing, side_by_side
from .moments import utc
from .source import ledger_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..partitions.extraction import Extraction
    from ..partitions.partition import Partition
    from .source import Operated

GRACE = timedelta(seconds=60)
"""For which what is overdue may be so: workers look now and then."""
LOOKED = 50
"""Runs in force that are looked at from either end, of each dataset: to look at millions would take hours."""
NAMED = 3
"""Partitions that a finding names."""


def rollups(ledger: Ledger, /) -> Iterator[Finding]:
    """The calendar against the rows."""
    from ..partitions.register import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    wrong = Register(ledger).imbalance()
    if wrong:
        says = "the calendar's counts don't balance with the partitions: " + "; ".join(wrong[:5])
        mend = "somebody wrote there without redrive: find out who, and compare with a backup"
        yield Finding("calendar", "critical", says, len(wrong), None, mend, False)


def paused(ledger: Ledger, /) -> Iterator[Finding]:
    """Sources of which nothing is handed out."""
    from ..partitions.register import Register  # noqa: PLC0415  # the same

    for one in Register(ledger).sources():
        if one.paused:
            until = "until somebody says so" if one.until is None else f"and probed {utc(one.until)} UTC"
            says = f"source {one.source} is paused by {one.actor}, {until}: {one.because}"
            mend = f'redrive state unpause {shlex.quote(one.source)} --whole-source --because "..."'
            yield Finding("source paused", "warning", says, 1, None, mend)


def leases(ledger: Ledger, /) -> Iterator[Finding]:
    """Extractions whose worker is gone, and that nobody took back."""
    from sqlalchemy import func, select  # noqa: PLC0415  # the same

    from ..ledger.partition_tables import work  # noqa: PLC0415

    over = ledger.now() - GRACE
    with ledger.reading() as connection:
        query = select(func.count(), func.min(work.c.lease_until)).where(work.c.lease_until < over)
        many, since = connection.execute(query).one()
    if many:
        held = amount(many, "extraction is leased to a worker that is", "extractions are leased to workers that are")
        says = f"{held} gone, and nobody took {'it' if many == 1 else 'them'} back: no worker looks here"
        yield Finding("dangling extractions", "critical", says, many, since, "redrive work module:app", False)


def lost(app: Operated, /) -> Iterator[Finding]:
    """Runs in force whose raw data is gone, or is not as large as it was. Nothing of a bare ledger, which knows no stores."""
    for extraction in extractions(app):
        chosen = _in_force(ledger_of(app), *extraction.terms.dataset)
        try:
            said = side_by_side(partial(_missing, extraction), chosen)
        except StorageError as problem:
            says = f"the raw data of {extraction.name} cannot be looked at: {problem}"
            yield Finding("raw data", "warning", says, 1, None, "redrive storage check", False)
            continue
        gone = [str(one) for (one, _), says in zip(chosen, said, strict=True) if says is not None]
        if gone:
            some = ", ".join(gone[:NAMED]) + (", …" if len(gone) > NAMED else "")
            looked = f"{len(gone):,} of {amount(len(chosen), 'run')} in force of {extraction.name} that {_were(chosen)} looked at"
            says = f"{looked} {'has' if len(gone) == 1 else 'have'} lost their raw data, or it was changed: {some}"
            every = f"redrive state inspect {shlex.quote(extraction.name)} --lost"
            mend = f'redrive state reprocess {shlex.quote(gone[0])} --because "..."' if len(gone) == 1 else every
            yield Finding("raw data", "critical", says, len(gone), None, mend)


def _were(looked: Sequence[object]) -> str:
    return "was" if len(looked) == 1 else "were"


def _missing(extraction: Extraction, one: tuple[Partition, str]) -> str | None:
    return missing(extraction, *one)


def _in_force(ledger: Ledger, source: str, query: str) -> list[tuple[Partition, str]]:
    """The oldest of them, which rules for old files take first, and the newest."""
    from sqlalchemy import select  # noqa: PLC0415  # the same

    from ..ledger.partition_tables import partition  # noqa: PLC0415
    from ..partitions.partition import Partition  # noqa: PLC0415

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
