"""Nav: the pages there are, in the order of an incident: is anything wrong, show me, act, what did we do."""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    """An entry of the menu. Immutable."""

    path: str
    title: str
    letter: str
    """`g` and then this goes there."""


NAV: tuple[tuple[str, tuple[Page, ...]], ...] = (
    (
        "Now",
        (Page("/", "Overview", "o"), Page("/failures", "Failures", "f"), Page("/journal", "Journal", "t")),
    ),
    (
        "Act",
        (Page("/dead", "Dead letters", "d"), Page("/sweeps", "Sweeps", "s"), Page("/keys", "Keys", "k")),
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
    ("Record", (Page("/audit", "Audit", "a"), Page("/layers", "Layers", "l"), Page("/erase", "Erase", "x"))),
)
