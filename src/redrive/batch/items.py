"""Items: where the rejections of items are counted. A small protocol, so that a table of the user's own can do it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class Items(Protocol):
    """Where attempts of items are counted: the ledger (`app.items`), your table (`TableItems`), or your own class.

    `redrive.testing.ItemsConformance` is a test suite for a class of your own.
    """

    def increment(self, item_id: str, /) -> int:
        """Add one, atomically; the new count. KeyError: there is no such item."""

    def give_up(self, item_id: str, reason: str, /) -> bool:
        """Forward only. False: it had been given up before."""

    def pending(self, among: Collection[str], /) -> set[str]:
        """Which of these may still be sent."""


@runtime_checkable
class ManyItems(Items, Protocol):
    """A store that can count many in one statement. Not required: without it each item is a statement of its own."""

    def increment_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Add one to each, all or none; the new counts. KeyError: not all of them exist."""

    def give_up_many(self, reasons: Mapping[str, str], /) -> set[str]:
        """Give up each, with its reason; those that had not been given up before."""


@runtime_checkable
class SparingItems(Protocol):
    """A store that also counts rejections in outages, which are not attempts. Not required.

    Without it, every rejection counts as an attempt: an uncounted exception would have no limit.
    """

    def spare_many(self, item_ids: Collection[str], /) -> Mapping[str, int]:
        """Add one to each, where other processes see it; the new counts. An item that is missing in them is charged."""


@runtime_checkable
class CheckedItems(Protocol):
    """A store that can be set up wrongly. Checked before the first pass of a call."""

    def check(self) -> None:
        """ValueError: it cannot work as it is; says how to set it up. Costs nothing once it has passed."""


@runtime_checkable
class ToldItems(Protocol):
    """A store that wants to hear which items were acknowledged, since it has no other way to know."""

    def acknowledge_many(self, item_ids: Collection[str], /) -> int:
        """These have arrived; of how many that was news."""


@runtime_checkable
class ReasonedItems(Protocol):
    """A store that keeps why items were given up."""

    def reasons(self, item_ids: Collection[str], /) -> Mapping[str, str]:
        """The reason of each, where one is known."""


@runtime_checkable
class ReopenedItems(Protocol):
    """A store of the user's own that an operator can look into: `redrive batch giveups --items module:object`."""

    def given_up(self, limit: int, /) -> Mapping[str, int]:
        """Items that were given up, and how often each was rejected."""

    def reopen_many(self, item_ids: Collection[str], /) -> set[str]:
        """Let these be sent again; those that had been given up."""


def increment(items: Items, ids: Collection[str], /) -> Mapping[str, int]:
    """Count a rejection of each; the new counts."""
    if isinstance(items, ManyItems):
        return items.increment_many(ids)
    return {item_id: items.increment(item_id) for item_id in ids}


def give_up(items: Items, reasons: Mapping[str, str], /) -> set[str]:
    """Give up each; those that had not been given up before."""
    if isinstance(items, ManyItems):
        return items.give_up_many(reasons)
    return {item_id for item_id, reason in reasons.items() if items.give_up(item_id, reason)}
