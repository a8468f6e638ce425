"""Lookup: what is known of partitions, put together for whoever asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ..errors import StorageError
from ..partitions.partition import Day, Partition, day
from ..partitions.record import Explanation, Facts, Marker, Run, Selection, Shade
from .datasets import extraction, terms_of
from .lost import missing
from .source import ledger_of

if TYPE_CHECKING:
    from ..partitions.register import Register
    from .source import Operated

__all__ = ["Explained", "Facts", "History", "Marker", "Run", "counts", "explained", "failures", "history"]


@dataclass(frozen=True, slots=True)
class History:
    """One partition with every attempt at it. Immutable."""

    facts: Facts
    runs: Sequence[Run]
    """The newest first."""
    markers: Sequence[Marker]
    now: datetime


@dataclass(frozen=True, slots=True)
class Explained:
    """How one stands, and why it is not running now. Immutable."""

    partition: Partition
    explanation: Explanation
    last: Run | None
    """The last attempt."""
    in_force: Run | None
    """The attempt that readers get."""
    assumed: bool
    """The dataset's own terms are not known here: the defaults were taken."""
    lost: str | None = None
    """Why the raw data of the current run cannot be read. None: no problem found, or its store is not known here."""


def history(app: Operated, partition: Partition, /) -> History | None:
    """None: nothing is stored of it."""
    from ..partitions.register import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    register = Register(ledger_of(app))
    facts = register.get(partition)
    if facts is None:
        return None
    return History(facts, register.history(partition), register.markers(partition), ledger_of(app).now())


def explained(app: Operated, partition: Partition, /) -> Explained:
    """Always something: what nobody has asked for is explained too."""
    from ..partitions.register import Register  # noqa: PLC0415  # the same

    register = Register(ledger_of(app))
    dataset = (partition.source, partition.query_name)
    terms = next((one for one in terms_of(app) if one.dataset == dataset), None)
    found = register.explain(partition, terms)
    runs = register.history(partition) if found.facts is not None else []
    current = None if found.facts is None else found.facts.current_run_id
    in_force = next((one for one in runs if one.run_id == current), None)
    lost = None if found.facts is None else _lost(app, found.facts)
    if lost is not None and found.why and found.why[0].startswith("accepted"):
        why = "accepted, but its raw data cannot be read, and no new extraction is requested"
        found = replace(found, why=(why, *found.why[1:]))
    return Explained(partition, found, runs[0] if runs else None, in_force, terms is None, lost)


def _lost(app: Operated, facts: Facts) -> str | None:
    """Why the raw data of the current run cannot be read, by a look at its files. Their bytes are not read."""
    known = extraction(app, facts.partition.source, facts.partition.query_name)
    if known is None or facts.current_raw_id is None:
        return None
    try:
        return missing(known, facts.partition, facts.current_raw_id)
    except StorageError:
        return None  # the store is not reachable: `redrive storage check` says why


def failures(register: Register, selection: Selection, /, *, terminal: bool, limit: int) -> list[Facts]:
    """What went wrong, the last first."""
    shades: tuple[Shade, ...] = ("terminal",) if terminal else ("failed", "terminal", "refresh_failed")
    return register.newest(replace(selection, shades=selection.shades or shades), limit=limit)


def counts(
    register: Register, source: str | None, query: str | None, since: Day | None, until: Day | None, /
) -> dict[tuple[str, str], Mapping[Shade, int]]:
    """By dataset."""
    first = None if since is None else day("since", since)
    last = None if until is None else day("until", until)
    return dict(register.counts(source=source, query_name=query, since=first, until=last))
