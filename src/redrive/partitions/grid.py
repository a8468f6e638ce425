"""Grid: a range of partitions, customers times days, that needs no rows: each has a place, and a place has its partition."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Self

from ..core.text import pluralise
from .partition import Day, Partition, named, span


@dataclass(frozen=True, slots=True)
class Grid:
    """Customers times days of one dataset, in an order. Immutable: anything may share it."""

    source: str
    query_name: str
    customers: tuple[str, ...]
    since: date
    until: date
    newest: bool = True
    """The last day first, all customers of a day after each other."""

    @classmethod
    def of(
        cls, source: str, query_name: str, customers: Iterable[str], since: Day, until: Day | None = None, /, *,
        newest: bool = True,
    ) -> Self:  # fmt: skip
        """A range, both ends in it. ValueError where it is reversed, or has no customer."""
        first, last = span(since, until)
        named("source", source)
        named("query", query_name)
        if isinstance(customers, str):
            raise TypeError(f"customers= is a collection of ids, not one text: [{customers!r}]")
        unique = tuple(dict.fromkeys(named("a customer", one) for one in customers))
        if not unique:
            raise ValueError(f"{source}/{query_name}: no customers to extract")
        return cls(source, query_name, unique, first, last, newest)

    def __len__(self) -> int:
        return len(self.customers) * self.days

    @property
    def days(self) -> int:
        """How many days it has."""
        return (self.until - self.since).days + 1

    def at(self, place: int, /) -> Partition:
        """The partition at a place, from 0."""
        if not 0 <= place < len(self):
            raise IndexError(f"the range has {pluralise(len(self), 'partition')}, and none at {place}")
        later, customer = divmod(place, len(self.customers))
        on = self.until - timedelta(days=later) if self.newest else self.since + timedelta(days=later)
        return Partition(self.source, self.customers[customer], self.query_name, on)

    def place(self, partition: Partition, /) -> int | None:
        """Where a partition stands in it; None: nowhere."""
        if (partition.source, partition.query_name) != (self.source, self.query_name):
            return None
        if not self.since <= partition.logical_date <= self.until or partition.customer_id not in self.customers:
            return None
        later = (self.until - partition.logical_date if self.newest else partition.logical_date - self.since).days
        return later * len(self.customers) + self.customers.index(partition.customer_id)

    def overlap(self, other: Grid, /) -> int:
        """How many partitions both have."""
        if (self.source, self.query_name) != (other.source, other.query_name):
            return 0
        days = (min(self.until, other.until) - max(self.since, other.since)).days + 1
        return max(0, days) * len(set(self.customers) & set(other.customers))

    def __str__(self) -> str:
        whose = pluralise(len(self.customers), "customer")
        return f"{self.source}/{self.query_name}: {whose} × {self.since} to {self.until} = {len(self)}"


def packed(ids: Sequence[int], /) -> bytes:
    """Ids, eight bytes each: a part of them can be read without the rest."""
    return struct.pack(f">{len(ids)}q", *ids)


def unpacked(stored: bytes, /) -> list[int]:
    """Ids, as they were packed."""
    return list(struct.unpack(f">{len(stored) // 8}q", stored))
