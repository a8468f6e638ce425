"""The options that select partitions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

import typer

from ....ops.partitions.selection import LaneName, PartitionFilter, parse_day, select_partitions
from ...options import PARTITION_STATES, argument, option, state_option

FORM = "source, source/query, or source/customer/query/2026-06-01..2026-06-30 (* matches any)"
Words = Annotated[list[str] | None, argument("WHICH", f"Partitions, as {FORM}")]
Source = Annotated[str | None, option("--source", "NAME", "Only this source")]
Customers = Annotated[
    list[str] | None, option("--customer-id", "ID", "Only this customer (repeatable)")
]
Query = Annotated[str | None, option("--query-name", "NAME", "Only this query")]
FirstDay = Annotated[str | None, option("--since", "DAY", "First day, such as 2026-06-01")]
LastDay = Annotated[str | None, option("--until", "DAY", "Last day, inclusive")]
OnDay = Annotated[str | None, option("--date", "DAY", "Only this day")]
StatusName = Literal["pending", "success", "failed", "refresh_failed", "terminal"]
Status = Annotated[
    StatusName | None,
    state_option(
        "--status",
        PARTITION_STATES,
        "Only this state, or its name in JSON, such as terminal for gave up. accepted includes "
        "newer run rejected, and failed includes gave up",
    ),
]
Reason = Annotated[
    str | None,
    option("--reason", "NAME", "Only partitions last rejected for this reason, such as row_count"),
]
MinAttempts = Annotated[
    int | None,
    option(
        "--min-attempts", "N", "Only partitions with at least this many validated attempts", min=0
    ),
]
InLane = Annotated[
    LaneName | None,
    typer.Option(
        "--lane", help="Only partitions queued or running in this lane", show_default=False
    ),
]
PartitionArgument = Annotated[
    str,
    typer.Argument(
        metavar="PARTITION", help="source/customer/query/2026-06-01 (%2F for a / inside a name)"
    ),
]


@dataclass(frozen=True, slots=True)
class FailedOptions:
    """The options that select failed partitions."""

    words: Words = None
    source: Source = None
    customers: Customers = None
    query: Query = None
    since: FirstDay = None
    until: LastDay = None
    on: OnDay = None
    reason: Reason = None
    min_attempts: MinAttempts = None

    def selection(self) -> PartitionFilter:
        """Return the selection. ValueError: the options contradict each other."""
        return self._select(None, None)

    def _select(self, status: StatusName | None, lane: LaneName | None) -> PartitionFilter:
        if self.on is not None and (self.since is not None or self.until is not None):
            raise ValueError("--date: pass either it, or --since and --until")
        first, last = _day("--since", self.since), _day("--until", self.until)
        if self.on is not None:
            first = last = _day("--date", self.on)
        return select_partitions(
            self.words or (),
            source=self.source,
            customers=self.customers or (),
            query=self.query,
            since=first,
            until=last,
            status=status,
            error=self.reason,
            min_attempts=self.min_attempts,
            lane=lane,
        )


@dataclass(frozen=True, slots=True)
class PartitionOptions(FailedOptions):
    """The options that select partitions."""

    status: Status = None
    lane: InLane = None

    def selection(self) -> PartitionFilter:
        """Return the selection. ValueError: the options contradict each other."""
        return self._select(self.status, self.lane)


@dataclass(frozen=True, slots=True)
class GivenUpOptions(PartitionOptions):
    """The same, for partitions that gave up unless --status is passed."""

    status: Status = "terminal"


def _day(option_name: str, text: str | None) -> date | None:
    return None if text is None else parse_day(option_name, text)
