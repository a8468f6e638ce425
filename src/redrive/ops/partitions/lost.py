"""Lost: partitions that were accepted, and whose raw data is gone from its store, or is not as large as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ...errors import Damaged, NotAllowed, StorageError
from .datasets import extractions

if TYPE_CHECKING:
    from ...partitions.datasets.definition import Extraction
    from ...partitions.key import Partition
    from ...partitions.model import Facts, Selection, Shade
    from ...partitions.queries import Register
    from ..target.target import Operated

READABLE: tuple[Shade, ...] = ("success", "refresh_failed")
PAGE = 500
AT_ONCE = 8
"""Runs that are looked at side by side."""
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Lost:
    """One whose readers get nothing, although it was accepted. Immutable."""

    facts: Facts
    says: str
    """What is missing, or has been changed."""


@dataclass(frozen=True, slots=True)
class RawState:
    """What is known of the raw data of a current run. Immutable."""

    problem: str | None = None
    """What is missing, or has another size. None: no problem found, or not checked."""
    unchecked: str | None = None
    """Why the files were not looked at. None: they were, or there is no current run."""


NO_APP = "pass --ledger module:app"
"""Why raw data is not checked where only a ledger is known."""


def raw_states(app: Operated, some: Sequence[Facts], /) -> list[RawState]:
    """Look at the files of the current runs of partitions, in their order. No bytes are read."""
    known = {one.terms.dataset: one for one in extractions(app)}

    def look(one: Facts) -> RawState:
        extraction = known.get((one.partition.source, one.partition.query_name))
        if one.current_raw_id is None:
            return RawState()
        if extraction is None:
            return RawState(unchecked=NO_APP)
        try:
            return RawState(missing(extraction, one.partition, one.current_raw_id))
        except StorageError:
            return RawState(unchecked="store not reachable, see `redrive storage check`")

    return side_by_side(look, some) if known else [look(one) for one in some]


def lost(app: Operated, register: Register, selection: Selection, /, *, after: int, limit: int) -> list[Lost]:
    """Those of the selection, in the order of their numbers. Looks at the files of every run in force; their bytes are not read.

    NotAllowed: nobody here knows the store, or it cannot be looked at.
    """
    known = {one.terms.dataset: one for one in extractions(app)}
    shades = tuple(one for one in READABLE if one in (selection.shades or READABLE))
    found: list[Lost] = []
    while shades and len(found) < limit:
        page = register.find(replace(selection, shades=shades), after=after, limit=PAGE)
        stores = [_store(known, one.partition) for one in page]
        look = [(store, one.partition, one.current_raw_id or "") for store, one in zip(stores, page, strict=True)]
        try:
            said = side_by_side(lambda one: missing(*one), look)
        except StorageError as problem:
            raise NotAllowed(f"the raw data cannot be read: {problem}") from problem
        found += [Lost(one, says) for one, says in zip(page, said, strict=True) if says is not None]
        if len(page) < PAGE:
            break
        after = page[-1].id
    return found[:limit]


def missing(extraction: Extraction, partition: Partition, run_id: str, /) -> str | None:
    """What is wrong with the files of a run; None: they are there."""
    from ...partitions.raw.files import raw  # noqa: PLC0415  # storage: not before it is looked at

    try:
        raw(extraction.store(), partition, run_id)
    except Damaged as damage:
        return str(damage)
    return None


def side_by_side(look: Callable[[T], R], some: Sequence[T], /) -> list[R]:
    """What each look came to, in their order."""
    with ThreadPoolExecutor(AT_ONCE, "redrive-look") as threads:
        return list(threads.map(look, some))


def _store(known: dict[tuple[str, str], Extraction], partition: Partition) -> Extraction:
    found = known.get((partition.source, partition.query_name))
    if found is None:
        raise NotAllowed(
            f"the raw data of {partition.source}/{partition.query_name} cannot be checked; the ledger does not know its store, "
            "so name the app that does (--ledger module:app; in code: Operator(app, ...))"
        )
    return found
