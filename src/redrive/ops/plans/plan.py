"""Plan: a frozen selection and what would be done to it. Making one leaves no trace; carrying it out is audited."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ..dead_letters.queries import Selection, pending

if TYPE_CHECKING:
    from ...ledger.jobs.sweeps import Act
    from ...ledger.ledger import Ledger
    from .options import Partitions


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned operation on dead letters or partitions. Immutable.

    Attributes:
        act: `"replay"`, `"discard"`, `"retry"`, `"reprocess"`, `"revalidate"` or `"backfill"`.
        ids: Ids of the dead letters or partitions. Empty for a backfill, which is a range.
        kinds: Number of items by job type or dataset.
        reasons: Number of items by reason.
        skipped: Items that were selected but cannot be changed, with the reason.
        more: True if more items match than the limit allows.
        selection: Selection of dead letters.
        errors: Number of items by signature of their error.
        partitions: Details, if the plan is about partitions.
    """

    act: str
    ids: tuple[int, ...]
    kinds: Mapping[str, int]
    reasons: Mapping[str, int]
    skipped: Mapping[Any, str]
    more: bool
    selection: Selection
    errors: Mapping[str, int] = field(default_factory=dict)
    partitions: Partitions | None = None

    @property
    def count(self) -> int:
        """Number of dead letters or partitions."""
        return len(self.ids) if self.partitions is None else self.partitions.count

    @property
    def digest(self) -> str:
        """Digest of the operation and its items. Pass it as `begin(seen=...)`."""
        if self.partitions is not None:
            return self.partitions.digest
        return hashlib.sha256(json.dumps([self.act, self.ids]).encode()).hexdigest()[:32]


class Counted(Protocol):
    """A plan of any kind: it says how many it is about."""

    @property
    def count(self) -> int:
        """How many."""


def agreed(plan: Counted, typed: str, /) -> bool:
    """Whether somebody has typed how many they are, as is asked before many are acted on."""
    return typed.strip().replace(",", "") == str(plan.count)


def planned(ledger: Ledger, act: Act, selection: Selection, /) -> Plan:
    """The plan. Only dead letters that are pending can be acted on."""
    ids: list[int] = []
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for letter in pending(ledger, selection):
        ids.append(letter.id)
        kinds[letter.kind] += 1
        reasons[letter.reason] += 1
        errors[letter.signature or letter.reason] += 1
    skipped: dict[int, str] = {}
    if selection.ids:
        there = {one.id: str(one.status) for one in ledger.dead_letters(ids=selection.ids, limit=len(selection.ids))}
        named = [one for one in dict.fromkeys(selection.ids) if one not in ids]
        skipped = {one: _why_not(one, there) for one in named[: None if selection.limit is None else selection.limit]}
    more = selection.limit is not None and len(ids) == selection.limit and _behind(ledger, selection, ids[-1])
    counted = [dict(each.most_common()) for each in (kinds, reasons, errors)]
    return Plan(act, tuple(ids), counted[0], counted[1], skipped, more, selection, counted[2])


def _why_not(letter_id: int, there: Mapping[int, str]) -> str:
    status = there.get(letter_id)
    if status is None:
        return "not found"
    return "does not match" if status == "pending" else f"{status} already"


def _behind(ledger: Ledger, selection: Selection, last: int) -> bool:
    one = pending(ledger, replace(selection, limit=1), after=last)
    return next(one, None) is not None
