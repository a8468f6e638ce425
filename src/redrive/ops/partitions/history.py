"""Lookup: what is known of partitions, put together for whoever asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ...partitions.key import Day, Partition, day
from ...partitions.model import Explanation, Facts, Marker, Run, Selection, Shade
from ..target.target import ledger_of
from .datasets import terms_of
from .lost import RawState, raw_states

if TYPE_CHECKING:
    from ...partitions.queries import Register
    from ..target.target import Operated

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
    """Why the raw data of the current run cannot be read. None: no problem, or not checked."""
    unchecked: str | None = None
    """Why the raw data of the current run was not checked. None: it was, or there is none."""


def history(app: Operated, partition: Partition, /) -> History | None:
    """None: nothing is stored of it."""
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    register = Register(ledger_of(app))
    facts = register.get(partition)
    if facts is None:
        return None
    return History(facts, register.history(partition), register.markers(partition), ledger_of(app).now())


def explained(app: Operated, partition: Partition, /) -> Explained:
    """Always something: what nobody has asked for is explained too."""
    from ...partitions.queries import Register  # noqa: PLC0415  # the same

    register = Register(ledger_of(app))
    dataset = (partition.source, partition.query_name)
    terms = next((one for one in terms_of(app) if one.dataset == dataset), None)
    found = register.explain(partition, terms)
    runs = register.history(partition) if found.facts is not None else []
    current = None if found.facts is None else found.facts.current_run_id
    in_force = next((one for one in runs if one.run_id == current), None)
    state = RawState() if found.facts is None else raw_states(app, [found.facts])[0]
    if state.problem is not None and found.why and found.why[0].startswith("accepted"):
        why = "accepted, but its raw data cannot be read, and no new extraction is requested"
        found = replace(found, why=(why, *found.why[1:]))
    return Explained(
        partition=partition,
        explanation=found,
        last=runs[0] if runs else None,
        in_force=in_force,
        assumed=terms is None,
        lost=state.problem,
        unchecked=state.unchecked,
    )


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
