"""Selections of partitions: by source, customer, query, dates and status, or in a short form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Literal, TypeAlias, TypedDict, Unpack
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from ...core.seconds import whole_number
from ...partitions.key import Day, Partition, parse_day, parse_range
from ...partitions.model import DisplayStatus, LaneName, PartitionFilter
from ...partitions.store.queries import MARKED

__all__ = [
    "MARKED",
    "FilterOptions",
    "LaneName",
    "PartitionFilter",
    "Standing",
    "acted_on",
    "not_future",
    "parse_day",
    "select_partitions",
    "short",
    "words_of",
]
SKIP_NAMES = {"terminal": "gave up"}
"""Reasons of skipped partitions whose printed name differs from the stored one."""
Standing: TypeAlias = Literal["pending", "success", "failed", "refresh_failed", "terminal"]
STANDINGS: Mapping[Standing, tuple[DisplayStatus, ...]] = {
    "pending": ("pending",),
    "success": ("success", "refresh_failed"),
    "failed": ("failed", "terminal"),
    "refresh_failed": ("refresh_failed",),
    "terminal": ("terminal",),
}
"""States that each status selects. `failed` includes `terminal`, and `success` includes
`refresh_failed`."""
FORM = "source/customer/query/2026-06-01..2026-06-30"
ANY = "*"
EASTMOST = timedelta(hours=14)
"""Offset of the time zone where a day begins first."""


class FilterOptions(TypedDict, total=False):
    """Options of `select_partitions`. None, or left out: any.

    Attributes:
        source: Only this source.
        query: Only this query.
        customers: Only these customers.
        since: First day.
        until: Last day, inclusive.
        status: Only this status.
        error: Only this reason of the last rejection.
        min_attempts: Minimum number of attempts.
        lane: Only partitions that are queued in this lane.
    """

    source: str | None
    query: str | None
    customers: Collection[str]
    since: Day | None
    until: Day | None
    status: Standing | None
    error: str | None
    min_attempts: int | None
    lane: LaneName | None


def select_partitions(
    words: Sequence[str] = (), /, **options: Unpack[FilterOptions]
) -> PartitionFilter:
    """Return a filter, which skins pass to the query as it is.

    Args:
        words: Partitions in full, or one short form, which the options narrow down.
        options: See `FilterOptions`.

    Raises:
        ValueError: An option is invalid, or contradicts the short form.
    """
    first, last = _range(options.get("since"), options.get("until"))
    status, attempts = options.get("status"), options.get("min_attempts")
    narrowed = PartitionFilter(
        source=options.get("source"),
        query_name=options.get("query"),
        customers=tuple(dict.fromkeys(options.get("customers", ()))) or None,
        since=first,
        until=last,
        shades=None if status is None else STANDINGS[status],
        reason=options.get("error"),
        min_attempts=None if attempts is None else whole_number("min_attempts", attempts, least=0),
        lane=options.get("lane"),
    )
    keys = [key for word in words if (key := _key(word)) is not None]
    if words and len(keys) == len(words):
        return replace(narrowed, keys=tuple(dict.fromkeys(keys)))
    if len(words) > 1:
        raise ValueError(f"pass any number of partitions in full, or one {FORM}: {' '.join(words)}")
    return _combine(short(words[0]), narrowed) if words else narrowed


def short(word: str, /) -> PartitionFilter:
    """Parse `crm`, `crm/orders` or `crm/acme/orders/2026-06-01..2026-06-30`, where * is any."""
    parts = word.split("/")
    if len(parts) not in (1, 2, 4) or not all(parts):
        raise ValueError(
            f"invalid selection {word!r}: use a source, source/query, or {FORM} (* for any; %2F "
            "for a / inside a name)"
        )
    source, *rest = (None if part == ANY else unquote(part, errors="strict") for part in parts[:3])
    if len(parts) < 4:
        return PartitionFilter(source=source, query_name=rest[0] if rest else None)
    first, last = (None, None) if parts[3] == ANY else _range(*_ends(parts[3]))
    return PartitionFilter(
        source=source,
        customers=None if rest[0] is None else (rest[0],),
        query_name=rest[1],
        since=first,
        until=last,
    )


def acted_on(selection: PartitionFilter, now: datetime, /) -> PartitionFilter:
    """Return the selection.

    Raise ValueError if it selects everything, or days that have not begun.
    """
    if selection.everything:
        raise ValueError(
            "no partitions selected; pass a source, customer, query, dates, status or error, "
            "because an empty selection means all"
        )
    days = [key.logical_date for key in selection.keys or ()] + [
        end for end in (selection.since, selection.until) if end
    ]
    not_future(max(days, default=date.min), now)
    return selection


def not_future(last: date, now: datetime, zone: ZoneInfo | None = None, /) -> None:
    """Raise ValueError if the day has not begun. Pure.

    Args:
        last: The day.
        now: The time.
        zone: Time zone of the dataset's schedule. None: it has no schedule, and UTC+14 counts.
    """
    today = (now + EASTMOST).date() if zone is None else now.astimezone(zone).date()
    if last > today:
        where = "UTC+14" if zone is None else zone.key
        fix = f"the last day to extract is {today} (today in {where})"
        raise ValueError(f"{last} is in the future; {fix}")


def words_of(selection: PartitionFilter, /) -> dict[str, str]:
    """Return the fields that narrow a selection down, as text."""
    words: dict[str, str] = {}
    for name in ("source", "query_name", "since", "until", "reason", "min_attempts", "lane"):
        value = getattr(selection, name)
        if value is not None:
            words[name] = str(value)
    for name, values in (
        ("customers", selection.customers),
        ("status", selection.shades),
        ("partitions", selection.keys),
    ):
        if values is not None:
            texts = list(map(str, values))
            more = f", … ({len(texts):,})" if len(texts) > 10 else ""
            words[name] = ", ".join(texts[:10]) + more
    return words


def _key(word: str) -> Partition | None:
    parts = word.split("/")
    if len(parts) != 4 or ANY in parts or ".." in parts[3]:
        return None
    return Partition.parse(word)


def _ends(text: str) -> tuple[str | None, str | None]:
    first, dots, last = text.partition("..")
    return (first or None, last or None) if dots else (text, text)


def _range(since: Day | None, until: Day | None) -> tuple[date | None, date | None]:
    if since is not None and until is not None:
        return parse_range(since, until)
    first = None if since is None else parse_day("since", since)
    last = None if until is None else parse_day("until", until)
    return first, last


def _combine(form: PartitionFilter, options: PartitionFilter) -> PartitionFilter:
    """Combine two selections. Raise ValueError if they contradict each other."""
    combined = {}
    for name in ("source", "query_name", "customers", "since", "until"):
        first, second = getattr(form, name), getattr(options, name)
        if first is not None and second is not None and first != second:
            values = f"{_plain(first)} and {_plain(second)}"
            raise ValueError(
                f"{name.replace('_', ' ')} is set twice, to different values: {values}"
            )
        combined[name] = second if first is None else first
    return replace(options, **combined)


def _plain(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def describe_skips(counts: Mapping[str, int], /) -> str:
    """Return skipped partitions by reason, such as `2 gave up, 1 running now`."""
    return ", ".join(
        f"{count:,} {SKIP_NAMES.get(reason, reason)}" for reason, count in counts.items()
    )
