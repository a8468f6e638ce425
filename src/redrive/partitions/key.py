"""Partition: one customer's data of one day, from one query of one source. It is extracted, judged and read whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Self, TypeAlias
from urllib.parse import unquote

LONGEST = 300
"""Bytes of each of the three names."""
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
        logical_date: The day.

    Raises:
        ValueError: A name is empty or not printable, or the date is not valid.
    """

    source: str
    customer_id: str
    query_name: str
    logical_date: date

    def __post_init__(self) -> None:
        for what in ("source", "customer_id", "query_name"):
            named(what, getattr(self, what))
        object.__setattr__(self, "logical_date", day("logical_date", self.logical_date))

    def __str__(self) -> str:
        parts = (self.source, self.customer_id, self.query_name)
        return "/".join((*map(_quoted, parts), self.logical_date.isoformat()))

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
            raise TypeError(f"a partition is written source/customer/query/date, not {type(text).__name__}: {text!r}")
        parts = text.split("/")
        if len(parts) != 4:
            raise ValueError(
                f"a partition is written source/customer/query/date, such as crm/acme/orders/2026-01-31 "
                f"(a / inside a name is %2F), not {text!r}"
            )
        source, customer, query = (unquote(part, errors="strict") for part in parts[:3])
        return cls(source, customer, query, day("the date", parts[3]))


def named(what: str, value: object, /) -> str:
    """A source, customer or query: any printable text, commas, slashes and all of Unicode included."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {type(value).__name__}: {value!r}")
    if not value.strip() or not value.isprintable():
        raise ValueError(f"{what} must be printable and not empty: {value!r}")
    try:
        long = len(value) * 4 > LONGEST and len(value.encode()) > LONGEST
    except UnicodeEncodeError:
        raise ValueError(f"{what} has half a character in it, which no database takes: {value!r}") from None
    if long:
        raise ValueError(f"{what} must not be longer than {LONGEST} bytes: {value[:60]!r}…")
    return value


def day(what: str, value: object, /) -> date:
    """A date that exists, given as one or as "2026-01-31"."""
    if isinstance(value, datetime):
        raise TypeError(
            f"{what} is a day, not a timestamp; pass {value.date().isoformat()!r}, or the day that you mean by {value!r}"
        )
    if isinstance(value, date):
        return value
    if not isinstance(value, str):
        raise TypeError(f'{what} must be a date, or text such as "2026-01-31", not {type(value).__name__}: {value!r}')
    try:
        found = date.fromisoformat(value)
    except ValueError as wrong:
        said = f"{what}={value!r}" if what.isidentifier() else f"{what} {value!r}"  # an argument, or an option, or in words
        raise ValueError(f'{said} is not a valid date, such as "2026-01-31": {wrong}') from None
    if found.isoformat() != value:
        raise ValueError(f'{what} is written year-month-day, "{found.isoformat()}", not {value!r}')
    return found


def span(since: Day, until: Day | None = None, /) -> tuple[date, date]:
    """Both ends of a range, both in it; one day where no other end is given. ValueError where it is reversed."""
    first = day("since", since)
    last = first if until is None else day("until", until)
    if last < first:
        raise ValueError(f"the range is reversed: it begins {first} and ends {last}; did you mean {last} to {first}?")
    return first, last


def days(since: date, until: date, /) -> Iterator[date]:
    """Each day of a range, both ends in it."""
    while since <= until:
        yield since
        since += ONE_DAY


def _quoted(part: str) -> str:
    # Only what the form itself needs: a customer's name stays readable.
    # A lone * is how an operator says any.
    return "%2A" if part == "*" else part.replace("%", "%25").replace("/", "%2F")
