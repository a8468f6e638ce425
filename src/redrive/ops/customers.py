"""Customers of a dataset, as its app knows them. Asked for at most once a minute, because pages
refresh every few seconds."""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from .partitions.datasets import extractions

if TYPE_CHECKING:
    from ..partitions.datasets.definition import Extraction
    from .target.target import Operated

FRESH = 60.0
"""Seconds for which a number of customers is reused."""
_LOCK = Lock()
_COUNTED: dict[int, tuple[float, Extraction, int | None]] = {}
"""By the identity of the extraction, which the entry keeps alive. As many as there are datasets."""


def customer_counts(app: Operated, /) -> dict[tuple[str, str], int]:
    """Return the number of customers of each dataset of the app. A bare ledger knows none.

    A dataset whose `customers=` function fails is left out, so that no page fails for it.
    """
    counts = {one.terms.dataset: _count(one) for one in extractions(app)}
    return {dataset: count for dataset, count in counts.items() if count is not None}


def _count(extraction: Extraction) -> int | None:
    if not callable(extraction.customers):
        return len(extraction.customers)
    now = monotonic()
    with _LOCK:
        known = _COUNTED.get(id(extraction))
    if known is not None and now - known[0] < FRESH:
        return known[2]
    try:
        count: int | None = len(extraction.everyone())
    except Exception:  # code of the user's, which may do anything
        count = None
    with _LOCK:
        _COUNTED[id(extraction)] = (now, extraction, count)
    return count
