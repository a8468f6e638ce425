"""Partition: the data of one customer and one day, from one query of one source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Self, TypeAlias
from urllib.parse import unquote

MAX_NAME_BYTES = 300
ONE_DAY = timedelta(days=1)
Day: TypeAlias = date | str
"""A date, or "2026-01-31"."""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """The data of one customer and one day, from one query of one source.

    As text: `crm/acme/orders/2026-01-31`. Immutable: threads may share it.

    Args:
        source: Name of the source.
        customer_id: Id of the customer.
        query_name: Name of the query.
        logical_date: Day of the data.

    Raises:
        ValueError: A name is empty or not printable, or the date is not valid.
    """

    source: str
    customer_id: str
    query_name: str
    logical_date: date

    def __post_init__(self) -> None:
        for field in ("source", "customer_id", "query_name"):
            check_name(field, getattr(self, field))
        object.__setattr__(self, "logical_date", parse_day("logical_date", self.logical_date))

    def __str__(self) -> str:
        parts = (self.source, self.customer_id, self.query_name)
        return "/".join((*map(_quote, parts), self.logical_date.isoformat()))

    @classmethod
    def parse(cls, text: str, /) -> Self:
        """Parse the text of a partition.

        Args:
            text: `source/customer/query/date`. A `/` inside a name is `%2F`.

        Returns:
            The partition.

        Raises:
            ValueError: The text is not a valid partition.
        """
        if not isinstance(text, str):
            raise TypeError(
                "a partition is written source/customer/query/date, "
                f"not {type(text).__name__}: {text!r}"
            )
        parts = text.split("/")
        if len(parts) != 4:
            raise ValueError(
                "a partition is written source/customer/query/date, "
                f"such as crm/acme/orders/2026-01-31 (a / inside a name is %2F), not {text!r}"
            )
        source, customer, query = (unquote(part, errors="strict") for part in parts[:3])
        return cls(source, customer, query, parse_day("the date", parts[3]))


def check_name(field: str, value: object, /) -> str:
    """Return the name of a source, customer or query if it is valid: any printable text."""
    if not isinstance(value, str):
        raise TypeError(f"{field} must be text, not {type(value).__name__}: {value!r}")
    if not value.strip() or not value.isprintable():
        raise ValueError(f"{field} must be printable and not empty: {value!r}")
    try:
        is_long = len(value) * 4 > MAX_NAME_BYTES and len(value.encode()) > MAX_NAME_BYTES
    except UnicodeEncodeError:
        raise ValueError(
            f"{field} has half a character in it, which no database takes: {value!r}"
        ) from None
    if is_long:
        raise ValueError(f"{field} must not be longer than {MAX_NAME_BYTES} bytes: {value[:60]!r}…")
    return value


def parse_day(field: str, value: object, /) -> date:
    """Return a date that is passed as a date or as "2026-01-31"."""
    if isinstance(value, datetime):
        raise TypeError(
            f"{field} is a day, not a timestamp; pass {value.date().isoformat()!r}, "
            f"or the day that you mean by {value!r}"
        )
    if isinstance(value, date):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f'{field} must be a date, or text such as "2026-01-31", '
            f"not {type(value).__name__}: {value!r}"
        )
    try:
        day = date.fromisoformat(value)
    except ValueError as error:
        # The name of an argument, or words such as "the date".
        subject = f"{field}={value!r}" if field.isidentifier() else f"{field} {value!r}"
        raise ValueError(f'{subject} is not a valid date, such as "2026-01-31": {error}') from None
    if day.isoformat() != value:
        raise ValueError(f'{field} is written year-month-day, "{day.isoformat()}", not {value!r}')
    return day


def parse_range(since: Day, until: Day | None = None, /) -> tuple[date, date]:
    """Return both ends of a range of days, inclusive. Without `until` it is one day.

    Raises:
        ValueError: The range is reversed.
    """
    first = parse_day("since", since)
    last = first if until is None else parse_day("until", until)
    if last < first:
        raise ValueError(
            f"the range is reversed: it begins {first} and ends {last}; "
            f"did you mean {last} to {first}?"
        )
    return first, last


def days_between(since: date, until: date, /) -> Iterator[date]:
    """Yield each day of a range, both ends included."""
    while since <= until:
        yield since
        since += ONE_DAY


def dataset_label(source: str, query: str, /) -> str:
    """Return the name of a dataset, such as `crm/orders`."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (source, query))


def _quote(part: str) -> str:
    # Escapes only what the form needs, so that names stay readable. A lone * means any.
    return "%2A" if part == "*" else part.replace("%", "%25").replace("/", "%2F")
