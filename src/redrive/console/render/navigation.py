"""Navigation: the pages of the menu, in the order in which an incident needs them."""

from __future__ import annotations

from typing import NamedTuple


class MenuEntry(NamedTuple):
    """A page in the menu. Immutable."""

    path: str
    title: str
    shortcut: str
    """The key that opens the page after `g`."""


NAVIGATION: tuple[tuple[str, tuple[MenuEntry, ...]], ...] = (
    (
        "Status",
        (
            MenuEntry("/", "Overview", "o"),
            MenuEntry("/failures", "Failures", "f"),
            MenuEntry("/journal", "Log records", "t"),
        ),
    ),
    (
        "Actions",
        (
            MenuEntry("/dead", "Dead letters", "d"),
            MenuEntry("/sweeps", "Bulk operations", "s"),
            MenuEntry("/keys", "Idempotency records", "k"),
        ),
    ),
    (
        "Work",
        (
            MenuEntry("/jobs", "Jobs", "j"),
            MenuEntry("/events", "Events", "e"),
            MenuEntry("/batches", "Batches", "b"),
            MenuEntry("/partitions", "Partitions", "p"),
            MenuEntry("/schedules", "Schedules", "c"),
            MenuEntry("/workers", "Workers", "w"),
        ),
    ),
    (
        "Records",
        (
            MenuEntry("/audit", "Audit log", "a"),
            MenuEntry("/layers", "Retry layers", "l"),
            MenuEntry("/erase", "Data erasure", "x"),
        ),
    ),
)
