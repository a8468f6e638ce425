"""Operations on batches: count their items by state, and reopen items that were given up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from ..batch.store.ledger import (
    count_given_up,
    given_up_items,
    has_batch,
    item_states,
    reopen_items,
    summarise_batches,
)
from ..ledger.ledger import Ledger
from .batch_items import STEP, Reopened, Reopening
from .batch_items import reopen as reopen_in_store
from .context import OperatorContext, check_reason


@dataclass(frozen=True, slots=True)
class Batch:
    """The number of items of a batch by state. Items that were never rejected are not stored."""

    name: str
    waiting: int
    """Rejected, and to be resent."""
    given_up: int
    acknowledged: int
    """Rejected at first, accepted later."""
    rejections: int
    uncharged: int
    """Rejections during an outage, which count against no item."""
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An item that is not resent until an operator reopens it."""

    batch: str
    item: str
    attempts: int
    """Rejections since it was last reopened."""
    rejections: int
    """All rejections."""
    reopened: int
    reason: str | None
    given_up_at: datetime


@dataclass(frozen=True, slots=True)
class BatchOperations:
    """Operations on batches, as `Operator.batches`. Threads may share one."""

    _context: OperatorContext

    def find(self) -> list[Batch]:
        """Return every batch with the number of its items by state.

        Returns:
            The batches, by name.
        """
        with self._context.ledger.reading() as connection:
            return [
                Batch(
                    name=summary.batch,
                    waiting=summary.open,
                    given_up=summary.giveup,
                    acknowledged=summary.acknowledged,
                    rejections=summary.rejections,
                    uncharged=summary.spared,
                    updated_at=summary.updated_at,
                )
                for summary in summarise_batches(connection)
            ]

    def given_up(
        self,
        *,
        batch: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
    ) -> list[GivenUp]:
        """Return items that were given up, newest first.

        Args:
            batch: Name of the batch.
            reason: Text in the reason.
            since: Not older than this.
            limit: Maximum number.

        Returns:
            The items.
        """
        with self._context.ledger.reading() as connection:
            items = given_up_items(connection, batch=batch, reason=reason, since=since, limit=limit)
        return [
            GivenUp(
                batch=item.batch,
                item=item.item,
                attempts=item.attempts - item.forgiven,
                rejections=item.attempts,
                reopened=item.reopened,
                reason=item.reason,
                given_up_at=item.given_up_at,
            )
            for item in items
        ]

    def plan_reopen(
        self,
        batch: str,
        /,
        *,
        items: Collection[str] = (),
        reason: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
    ) -> Reopening:
        """Plan to send items again that were given up. Nothing is changed before `reopen`.

        Args:
            batch: Name of the batch.
            items: Ids of items.
            reason: Text in the reason.
            since: Not older than this.
            limit: Maximum number. The oldest items come first.

        Returns:
            The plan.

        Raises:
            ValueError: Neither items nor a reason nor a time is passed.
        """
        if not items and reason is None and since is None:
            raise ValueError(
                "no items selected; pass ids, a reason or since, because an empty selection "
                "would mean all items"
            )
        ids = list(dict.fromkeys(items))
        limit = max(limit, len(ids))
        with self._context.ledger.reading() as connection:
            rows = given_up_items(
                connection,
                batch=batch,
                ids=ids,
                reason=reason,
                since=since,
                limit=limit + 1,
                newest=False,
            )
            more, rows = len(rows) > limit, rows[:limit]
            matched = len(rows)
            if more:
                matched = count_given_up(
                    connection, batch=batch, ids=ids, reason=reason, since=since
                )
            planned = {row.item for row in rows}
            unplanned = [item for item in ids if item not in planned]
            states = item_states(connection, batch, unplanned) if unplanned else {}
            has_items = bool(states) or not unplanned or has_batch(connection, batch)
        return Reopening(
            batch=batch,
            items=tuple(row.item for row in rows),
            reasons=dict(Counter(row.reason or "" for row in rows).most_common()),
            skipped={
                item: _why_skipped(batch, states.get(item), has_items=has_items)
                for item in unplanned
            },
            more=more,
            beyond=matched - len(rows),
        )

    def reopen(
        self, plan: Reopening, /, *, because: str, store: str | None = None
    ) -> Iterator[Reopened]:
        """Carry out a plan, step by step. Each step is one transaction with its audit entry.

        Args:
            plan: The plan.
            because: Why, for the audit log.
            store: Your own item store, as `module:object`, instead of the ledger.

        Returns:
            An iterator of the steps.
        """
        check_reason(because)
        self._context.require("reopen", None)
        ledger, actor = self._context.ledger, self._context.actor
        if store is None:
            return _reopen(ledger, plan, actor=actor, because=because)
        return reopen_in_store(ledger, store, plan, actor=actor, because=because)


def _reopen(ledger: Ledger, plan: Reopening, *, actor: str, because: str) -> Iterator[Reopened]:
    for start in range(0, plan.count, STEP):
        items = plan.items[start : start + STEP]
        with ledger.connections.write.use() as session:
            reopened = reopen_items(session, plan.batch, items, actor=actor, because=because)
        done = set(reopened)
        skipped = {item: "it is no longer given up" for item in items if item not in done}
        yield Reopened(tuple(reopened), skipped)


def _why_skipped(batch: str, state: str | None, *, has_items: bool) -> str:
    if not has_items:
        return f"the ledger has no rejected items of a batch {batch!r}"
    if state is None:
        return f"it was never rejected in {batch}, or does not exist"
    return "it does not match" if state == "giveup" else "it is not given up"
