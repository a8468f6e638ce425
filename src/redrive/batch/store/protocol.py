"""The protocol of a store that counts rejections, and the optional methods that a store may add.

It is small so that a table of the user's own can implement it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Items(Protocol):
    """A store that counts the attempts of items.

    Use the ledger (`app.items`), your table (`TableItems`), or your own class.
    `redrive.testing.ItemsConformance` is a test suite for your own class.
    """

    def increment(self, item_id: str, /) -> int:
        """Add one rejection to an item, atomically.

        Args:
            item_id: Id of the item.

        Returns:
            The new count.

        Raises:
            KeyError: The item does not exist.
        """

    def give_up(self, item_id: str, reason: str, /) -> bool:
        """Give an item up. It cannot be sent again without an operator.

        Args:
            item_id: Id of the item.
            reason: Why.

        Returns:
            False if the item was given up before.
        """

    def pending(self, among: Collection[str], /) -> set[str]:
        """Return the items that may still be sent.

        Args:
            among: Ids to look up.

        Returns:
            Those of them that are pending.
        """


@runtime_checkable
class ManyItems(Items, Protocol):
    """A store that counts many items in one statement.

    Optional: without it, each item is a statement.
    """

    def increment_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Add one rejection to each item: all of them or none.

        Args:
            item_ids: Ids of the items.

        Returns:
            The new count of each item.

        Raises:
            KeyError: An item does not exist.
        """

    def give_up_many(self, reasons: Mapping[str, str], /) -> set[str]:
        """Give many items up.

        Args:
            reasons: The reason for each item id.

        Returns:
            The items that were not given up before.
        """


@runtime_checkable
class SparingItems(Protocol):
    """A store that also counts rejections in outages, which do not count as attempts. Optional.

    Without it, every rejection counts as an attempt.
    """

    def spare_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Count a rejection in an outage for each item.

        Args:
            item_ids: Ids of the items.

        Returns:
            The new count of each item. The rejection of an item that is missing here counts as an
                attempt.
        """


@runtime_checkable
class SelfCheckingItems(Protocol):
    """A store that can be configured wrongly. It is checked before the first pass of a call."""

    def check(self) -> None:
        """Check the configuration. Free once the check has passed.

        Raises:
            ValueError: The store cannot work as configured. The message says how to fix it.
        """


@runtime_checkable
class AcknowledgingItems(Protocol):
    """A store that must be told which items were acknowledged, because it cannot see it itself."""

    def acknowledge_many(self, item_ids: Collection[str], /) -> int:
        """Record the items as acknowledged. Returns how many had ever been rejected."""


@runtime_checkable
class ItemsWithAcknowledgements(Protocol):
    """A store that knows which items were acknowledged, also by another sender. Optional.

    Without it, an item that another sender acknowledged meanwhile is reported as given up.
    """

    def acknowledged(self, among: Collection[str], /) -> set[str]:
        """Return those of the items that are stored as acknowledged."""


@runtime_checkable
class ItemsWithReasons(Protocol):
    """A store that knows why items were given up."""

    def reasons(self, item_ids: Collection[str], /) -> Mapping[str, str]:
        """Return the reason of each item that has one."""


@runtime_checkable
class ItemsWithStates(Protocol):
    """A store that knows the state of each item."""

    def states(self, item_ids: Collection[str], /) -> Mapping[str, str]:
        """Return the state of each item, without the items that do not exist."""


@runtime_checkable
class ReopenableItems(Protocol):
    """A store that an operator can inspect: `redrive batch giveups --items module:object`."""

    def given_up(self, limit: int, /) -> Mapping[str, int]:
        """Return items that were given up, and the number of rejections of each."""

    def reopen_many(self, item_ids: Collection[str], /) -> set[str]:
        """Allow items to be sent again. Returns those that had been given up."""


def acknowledged_items(items: Items, ids: Collection[str], /) -> set[str]:
    """Return the items that another sender acknowledged. Empty if the store does not know it."""
    if not ids or not isinstance(items, ItemsWithAcknowledgements):
        return set()
    return items.acknowledged(ids)


def count_rejections(items: Items, ids: Collection[str], /) -> Mapping[str, int]:
    """Count a rejection for each item and return the new counts."""
    if isinstance(items, ManyItems):
        return items.increment_many(ids)
    return {item_id: items.increment(item_id) for item_id in ids}


def give_up_items(items: Items, reasons: Mapping[str, str], /) -> set[str]:
    """Give up each item and return those that had not been given up before."""
    if isinstance(items, ManyItems):
        return items.give_up_many(reasons)
    return {item_id for item_id, reason in reasons.items() if items.give_up(item_id, reason)}
