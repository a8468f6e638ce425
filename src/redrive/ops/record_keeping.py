"""RecordKeeping: idempotency records, items of batches, and the data of one user."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from ..core.lazy import deferred
from .overview.reports import Watching

if TYPE_CHECKING:
    from ..idempotency.record import Status as KeyStatus
    from . import batch as items_of
    from . import batch_items as own_items
    from . import erase, keys
    from .batch import Batch, GivenUp, Reopened, Reopening
    from .erase import Erasure
    from .keys import HeldKey, KeyReport
else:  # Deferred like the modules of operator.py.
    erase, keys, own_items, items_of = deferred(__package__, "erase", "keys", "batch_items", "batch")


class RecordKeeping(Watching):
    """Records that are not jobs. A facet of Operator, which says who may share it."""

    actor: str

    # ---- idempotency keys ----

    def keys(
        self, *, domain: str | None = None, user: str | None = None, status: KeyStatus | None = None, abandoned: bool = False,
        limit: int = 100,
    ) -> list[HeldKey]:  # fmt: skip
        """Return idempotency records.

        Args:
            domain: First part of the key.
            user: User of the key.
            status: `"processing"`, `"completed"` or `"failed"`.
            abandoned: Only records in processing whose holder has crashed.
            limit: Maximum number.

        Returns:
            The records.
        """
        return keys.listed(self._ledger, domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)

    def key(self, key: str, /) -> KeyReport | None:
        """Return everything that is known about an idempotency record.

        Args:
            key: The idempotency key.

        Returns:
            The report, or None.
        """
        return keys.shown(self._ledger, key)

    def release(self, key: str, /, *, because: str, force: bool = False) -> HeldKey:
        """Delete an idempotency record, so that the next call runs again.

        Args:
            key: The idempotency key.
            because: Why, for the audit log.
            force: Delete it even if a caller holds it.

        Returns:
            The record as it was.

        Raises:
            NotAllowed: A caller holds it now.
        """
        return keys.released(self._ledger, key, actor=self.actor, because=because, force=force)

    # ---- batches ----

    def batches(self) -> list[Batch]:
        """Return every batch with the number of its items by state.

        Returns:
            The batches.
        """
        return items_of.batches(self._ledger)

    def giveups(
        self, *, batch: str | None = None, reason: str | None = None, since: datetime | None = None, limit: int = 100
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
        return items_of.giveups(self._ledger, batch=batch, reason=reason, since=since, limit=limit)

    def reopen(
        self, batch: str, /, *, items: Collection[str] = (), reason: str | None = None, since: datetime | None = None,
        limit: int = 100,
    ) -> Reopening:  # fmt: skip
        """Plan to send items again that were given up. Nothing is changed before `reopening`.

        Args:
            batch: Name of the batch.
            items: Ids of items.
            reason: Text in the reason.
            since: Not older than this.
            limit: Maximum number.

        Returns:
            The plan.
        """
        return items_of.planned(self._ledger, batch, items=items, reason=reason, since=since, limit=limit)

    def reopening(self, what: Reopening, /, *, because: str, store: str | None = None) -> Iterator[Reopened]:
        """Carry out a reopening, step by step. Each step is one transaction with its audit entry.

        Args:
            what: The plan.
            because: Why, for the audit log.
            store: Your own item store, as `module:object`, instead of the ledger.

        Returns:
            An iterator of the steps.
        """
        if not isinstance(because, str) or not because.strip():
            raise ValueError(f"because= must say why: {because!r}")
        if store is not None:
            return own_items.applied(self._ledger, store, what, actor=self.actor, because=because)
        return items_of.applied(self._ledger, what, actor=self.actor, because=because)

    # ---- one user's data ----

    def erasing(self, user: str, /) -> Erasure:
        """Plan to erase the data of a user. Nothing is changed or recorded before `erase`.

        Args:
            user: Id of the user.

        Returns:
            The plan.
        """
        return erase.planned(self._ledger, user)

    def erase(self, what: Erasure, /, *, because: str) -> tuple[str, ...]:
        """Erase the data of a user. The audit log records that it was done, not whose data it was.

        Args:
            what: The plan.
            because: Why, for the audit log.

        Returns:
            What was erased.
        """
        return erase.erased(self._ledger, what, actor=self.actor, because=because)
