"""Selectors: which partitions, as every command of them has it."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import typer

from ....ops.partitions.selection import Selection, Standing, day, selected
from ...choices import PARTITION, state_option
from ...options import option

FORM = "source, source/query, or source/customer/query/2026-06-01..2026-06-30 (* matches any)"
Words = Annotated[list[str] | None, typer.Argument(metavar="WHICH", help=f"Partitions, as {FORM}", show_default=False)]
Source = Annotated[str | None, option("--source", "NAME", "Only this source")]
Customers = Annotated[
    list[str] | None,
    typer.Option("--customer-id", metavar="ID", help="Only this customer (repeatable)", show_default=False),
]
Query = Annotated[str | None, option("--query-name", "NAME", "Only this query")]
First = Annotated[str | None, option("--since", "DAY", "First day, such as 2026-06-01")]
Last = Annotated[str | None, option("--until", "DAY", "Last day, inclusive")]
On = Annotated[str | None, option("--date", "DAY", "Only this day")]
Status = Annotated[
    Literal["pending", "success", "failed", "refresh_failed", "terminal"] | None,
    state_option(
        "--status",
        PARTITION,
        "Only this state, or its name in JSON, such as terminal for gave up. accepted includes newer run rejected, and "
        "failed includes gave up",
    ),
]
Error = Annotated[str | None, option("--reason", "NAME", "Only partitions last rejected for this reason, such as row_count")]
MinAttempts = Annotated[
    int | None,
    typer.Option(
        "--min-attempts",
        min=0,
        metavar="N",
        help="Only partitions with at least this many validated attempts",
        show_default=False,
    ),
]
InLane = Annotated[
    Literal["fresh", "retry", "backfill"] | None,
    typer.Option("--lane", help="Only partitions queued or running in this lane", show_default=False),
]
Partition = Annotated[
    str, typer.Argument(metavar="PARTITION", help="source/customer/query/2026-06-01 (%2F for a / inside a name)")
]


def which(
    words: list[str] | None, source: str | None, customers: list[str] | None, query: str | None, since: str | None,
    until: str | None, on: str | None, status: Standing | None, error: str | None, min_attempts: int | None,
    lane: Literal["fresh", "retry", "backfill"] | None,
) -> Selection:  # fmt: skip
    """The selection that these say; ValueError where they say nonsense."""
    if on is not None and (since is not None or until is not None):
        raise ValueError("--date: pass either it, or --since and --until")
    first, last = (dated("--since", since), dated("--until", until)) if on is None else (dated("--date", on),) * 2
    return selected(
        words or (), source=source, customers=customers or (), query=query, since=first, until=last, status=status,
        error=error, min_attempts=min_attempts, lane=lane,
    )  # fmt: skip


def dated(option_: str, text: str | None, /) -> date | None:
    """The day that an option says; ValueError names the option."""
    return None if text is None else day(option_, text)
