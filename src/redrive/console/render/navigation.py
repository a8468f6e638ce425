"""Nav: the pages of the menu, in the order in which an incident needs them."""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    """An entry of the menu. Immutable."""

    path: str
    title: str
    letter: str
    """The key that opens the page after `g`."""


NAV: tuple[tuple[str, tuple[Page, ...]], ...] = (
    (
        "Status",
        (Page("/", "Overview", "o"), Page("/failures", "Failures", "f"), Page("/journal", "Log records", "t")),
    ),
    (
        "Actions",
        (
            Page("/dead", "Dead letters", "d"),
            Page("/sweeps", "Bulk operations", "s"),
            Page("/keys", "Idempotency records", "k"),
        ),
    ),
    (
        "Work",
        (
            Page("/jobs", "Jobs", "j"),
            Page("/events", "Events", "e"),
            Page("/batches", "Batches", "b"),
            Page("/partitions", "Partitions", "p"),
            Page("/schedules", "Schedules", "c"),
            Page("/workers", "Workers", "w"),
        ),
    ),
    (
        "Records",
        (Page("/audit", "Audit log", "a"), Page("/layers", "Retry layers", "l"), Page("/erase", "Data erasure", "x")),
    ),
)
