"""Datasets by name: those that the app registered, and those that have partitions."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from time import monotonic
from typing import TypeAlias
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from ...commands.cron import Cron
from ...partitions.datasets.dataset import Dataset, Extraction
from ...partitions.key import dataset_label
from ...partitions.model import PartitionFilter
from ...partitions.queries import PartitionQueries
from ...partitions.retry_schedule import DatasetLimits
from ..project.target import Operated, extractions, ledger_of
from ..project.user_code import suggest

Named: TypeAlias = "Dataset | str"
"""A dataset, or its name such as `crm/orders`."""
NO_MATCH = "No partition matches."
MAX_CHECKED_NAMES = 100
"""Customers that are compared with the known ones. A longer list was generated, not typed."""
MAX_NAMED = 12
"""Known names that a message lists."""
COUNT_SECONDS = 60.0
"""Time for which a number of customers is reused: pages refresh every few seconds."""
_counts: dict[int, tuple[float, Extraction, int | None]] = {}
"""Number of customers by the identity of the extraction, which the entry keeps alive."""
_counts_lock = Lock()


def find_extraction(app: Operated, source: str, query: str, /) -> Extraction | None:
    """Return a registered dataset. None: the app does not have it."""
    matches = (each for each in extractions(app) if each.limits.dataset == (source, query))
    return next(matches, None)


def zone_of(app: Operated, source: str, query: str, /) -> ZoneInfo | None:
    """Return the time zone of a dataset's schedule, from the app or as a worker stored it.

    None: it has no schedule, or none is known.
    """
    registered = find_extraction(app, source, query)
    if registered is not None:
        return None if registered.cron is None else registered.cron.zone
    stored = PartitionQueries(ledger_of(app)).schedules().get((source, query))
    cron = None if stored is None else parse_cron(stored.cron)
    return None if cron is None else cron.zone


def parse_cron(line: str | None, /) -> Cron | None:
    """Return the schedule of a stored line, which ends with a time zone. None: it is not valid."""
    fields, _, zone = (line or "").rpartition(" ")
    try:
        return Cron(fields, zone)
    except (ValueError, ModuleNotFoundError):
        return None


def terms_of(app: Operated, /) -> list[DatasetLimits]:
    """Return the limits and retries of each registered dataset. For others the defaults apply."""
    return [extraction.limits for extraction in extractions(app)]


def customer_counts(app: Operated, /) -> dict[tuple[str, str], int]:
    """Return the number of customers of each registered dataset.

    A dataset whose `customers=` function fails is left out, so that no page fails for it.
    """
    counts = {each.limits.dataset: _count_customers(each) for each in extractions(app)}
    return {dataset: count for dataset, count in counts.items() if count is not None}


def _count_customers(extraction: Extraction) -> int | None:
    if not callable(extraction.customers):
        return len(extraction.customers)
    now = monotonic()
    with _counts_lock:
        cached = _counts.get(id(extraction))
    if cached is not None and now - cached[0] < COUNT_SECONDS:
        return cached[2]
    try:
        count: int | None = len(extraction.current_customers())
    except Exception:  # Code of the user, which may do anything.
        count = None
    with _counts_lock:
        _counts[id(extraction)] = (now, extraction, count)
    return count


def label(source: str, query: str, /) -> str:
    """Return the name of a dataset, such as `crm/orders`."""
    return dataset_label(source, query)


def parse_label(text: str, /) -> tuple[str, str] | None:
    """Return source and query of a dataset's name. None: it is not a name of a dataset."""
    parts = text.split("/")
    if len(parts) != 2 or not all(parts):
        return None
    source, query = (unquote(part, errors="replace") for part in parts)
    return source, query


def known_datasets(app: Operated, /) -> list[tuple[str, str]]:
    """Return source and query of every dataset that is registered or has partitions."""
    registered = {terms.dataset for terms in terms_of(app)}
    return sorted({*registered, *PartitionQueries(ledger_of(app)).datasets()})


def resolve_dataset(app: Operated, dataset: Named, /) -> tuple[str, str]:
    """Return source and query of a dataset. Raise ValueError if its name is unknown."""
    if not isinstance(dataset, str):
        return dataset.source, dataset.query
    parts = dataset.split("/")
    if len(parts) != 2 or not all(parts):
        raise ValueError(
            f"invalid dataset {dataset!r}: use source/query, such as crm/orders, with %2F for a "
            "/ inside a name"
        )
    source, query = (unquote(part, errors="strict") for part in parts)
    _check_known(known_datasets(app), source, query)
    return source, query


def check_selection(app: Operated, selection: PartitionFilter, /) -> PartitionFilter:
    """Return the selection. Raise ValueError if it names an unknown source or query."""
    keys = selection.keys or ()
    if selection.source is not None or selection.query_name is not None or keys:
        known = known_datasets(app)
        _check_known(known, selection.source, selection.query_name)
        for source, query in dict.fromkeys((key.source, key.query_name) for key in keys):
            _check_known(known, source, query)
    return selection


def describe_no_match(app: Operated, selection: PartitionFilter, /) -> str:
    """Return `No partition matches.`, and which selected customers are unknown."""
    keys = selection.keys or ()
    names = {*(selection.customers or ()), *(key.customer_id for key in keys)}
    if not 0 < len(names) <= MAX_CHECKED_NAMES:
        return NO_MATCH
    source = keys[0].source if keys else selection.source
    query = keys[0].query_name if keys else selection.query_name
    known = sorted(PartitionQueries(ledger_of(app)).customers(source, query))
    unknown = [f"{name!r}{suggest(name, known)}" for name in sorted(names.difference(known))]
    if not unknown:
        return NO_MATCH
    noun = "customer" if len(unknown) == 1 else "customers"
    more = ", …" if len(unknown) > MAX_NAMED else ""
    return f"{NO_MATCH[:-1]}: unknown {noun} {', '.join(unknown[:MAX_NAMED])}{more}."


def _check_known(known: Sequence[tuple[str, str]], source: str | None, query: str | None) -> None:
    sources = sorted({each for each, _ in known})
    if source is not None and source not in sources:
        raise ValueError(
            f"unknown source {source!r}{suggest(source, sources)}; {_list_known(sources)}"
        )
    queries = sorted({each for owner, each in known if source in (None, owner)})
    if query is not None and query not in queries:
        of_source = "" if source is None else f" of source {source!r}"
        raise ValueError(
            f"unknown query {query!r}{of_source}{suggest(query, queries)}; {_list_known(queries)}"
        )


def _list_known(names: Sequence[str]) -> str:
    if not names:
        return "no dataset is registered, and none has partitions"
    return "known: " + ", ".join(names[:MAX_NAMED]) + (", …" if len(names) > MAX_NAMED else "")
