"""Batches, as an operator sees them: how their items stand, which were given up and why; and how those are opened again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..batch.store.queries import GivenUpItem
    from ..ledger.ledger import Ledger

STEP = 100
"""How many are opened in one transaction, with its entry in the audit."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How the items of one batch stand. Items that were never rejected are not known here."""

    name: str
    waiting: int
    """Rejected, and to be sent again."""
    given_up: int
    acknowledged: int
    """Rejected first, and arrived later."""
    rejections: int
    uncharged: int
    """Rejections in outages."""
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An item that is sent no more, until a person opens it again."""

    batch: str
    item: str
    attempts: int
    """Rejections since it last began anew."""
    rejections: int
    """Ever."""
    reopened: int
    reason: str | None
    given_up_at: datetime


@dataclass(frozen=True, slots=True)
class Reopening:
    """What would be opened again. Immutable; making one leaves no trace."""

    batch: str
    items: tuple[str, ...]
    reasons: Mapping[str, int]
    skipped: Mapping[str, str]
    """Those that were asked for and cannot be opened, and why."""
    more: bool
    """Others would match too, beyond the limit."""
    act: Literal["reopen"] = "reopen"

    @property
    def count(self) -> int:
        """How many items."""
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Reopened:
    """What was done of it, so far."""

    done: tuple[str, ...]
    skipped: Mapping[str, str]
    """Those that were no longer given up, and were left alone."""


def batches(ledger: Ledger, /) -> list[Batch]:
    """By name."""
    from ..batch.store.queries import summarise_batches  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    with ledger.reading() as connection:
        found = summarise_batches(connection)
    return [Batch(one.batch, one.open, one.giveup, one.acknowledged, one.rejections, one.spared, one.updated_at) for one in found]


def giveups(ledger: Ledger, /, *, batch: str | None, reason: str | None, since: datetime | None, limit: int) -> list[GivenUp]:
    """The newest first."""
    from ..batch.store.queries import given_up_items  # noqa: PLC0415  # likewise

    with ledger.reading() as connection:
        return [_shown(one) for one in given_up_items(connection, batch=batch, reason=reason, since=since, limit=limit)]


def planned(
    ledger: Ledger, batch: str, /, *, items: Collection[str] = (), reason: str | None = None, since: datetime | None = None,
    limit: int = 100,
) -> Reopening:  # fmt: skip
    """What would be opened: the oldest first."""
    from ..batch.store.queries import given_up_items, has_batch, item_states  # noqa: PLC0415  # likewise

    if not items and reason is None and since is None:
        raise ValueError("no items selected; pass ids, a reason or since, because an empty selection would mean all items")
    wanted = list(dict.fromkeys(items))
    most = max(limit, len(wanted))
    with ledger.reading() as connection:
        found = given_up_items(connection, batch=batch, ids=wanted, reason=reason, since=since, limit=most + 1, newest=False)
        there = [one.item for one in found[:most]]
        others = [one for one in wanted if one not in set(there)]
        known = item_states(connection, batch, others) if others else {}
        has_items = bool(known) or not others or has_batch(connection, batch)
    skipped = {one: _why_skipped(batch, known.get(one), has_items=has_items) for one in others}
    reasons = Counter(one.reason or "" for one in found[:most])
    return Reopening(batch, tuple(there), dict(reasons.most_common()), skipped, len(found) > most)


def _why_skipped(batch: str, state: str | None, *, has_items: bool) -> str:
    if not has_items:
        return f"the ledger has no rejected items of a batch {batch!r}"
    if state is None:
        return f"it was never rejected in {batch}, or does not exist"
    return "it does not match" if state == "giveup" else "it is not given up"


def applied(ledger: Ledger, plan: Reopening, /, *, actor: str, because: str) -> Iterator[Reopened]:
    """Carry it out, step by step; each step is one transaction with its entry in the audit."""
    from ..batch.store.queries import reopen_items  # noqa: PLC0415  # likewise

    for start in range(0, plan.count, STEP):
        some = plan.items[start : start + STEP]
        with ledger.connections.write.use() as session:
            done = reopen_items(session, plan.batch, some, actor=actor, because=because)
        opened = set(done)
        yield Reopened(tuple(done), {one: "it is no longer given up" for one in some if one not in opened})


def _shown(one: GivenUpItem) -> GivenUp:
    return GivenUp(one.batch, one.item, one.attempts - one.forgiven, one.attempts, one.reopened, one.reason, one.given_up_at)
