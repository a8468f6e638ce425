"""Rejections: partitions that failed, by dataset and by why: beside the jobs that do, since one cause may be behind both."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ...journal.redaction import redact_text
from .datasets import label, meaning

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...partitions.store.overview import Troubled

LOOKED = 30
"""Of each dataset the last so many are looked at; how many there are in all the overview counts."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Partitions of one dataset that failed for one reason, or that are readable while a newer run of theirs was rejected."""

    source: str
    query: str
    reason: str | None
    """In a word: a check's name, or what the error is; None: they were given up, by a person or since their workers died."""
    many: int
    more: bool
    """Only the last of the dataset were looked at: there may be more."""
    terminal: int
    """Of these: not tried any more."""
    readable: int
    """Of these: an older run is in force."""
    last_at: datetime | None
    """When the last one was judged; None: none of them was."""
    partition: str
    """That one, as a sample."""
    error: str | None
    """Of that one, the first line."""

    @property
    def why(self) -> str:
        """The reason, or that there is none."""
        return self.reason or "given up"

    @property
    def name(self) -> str:
        """Of the dataset, as people write it."""
        return label(self.source, self.query)


def rejections(
    ledger: Ledger,
    /,
    *,
    dataset: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 100,
) -> list[Rejection]:
    """What was judged last comes first. dataset: only of this one, such as crm/orders."""
    from ...partitions.store.overview import troubled  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    only = None if dataset is None else meaning(dataset)
    if dataset is not None and only is None:
        return []
    with ledger.reading() as connection:
        found = troubled(
            connection, dataset=only, since=since, until=until, each=LOOKED, unjudged=since is None and until is None
        )
    alike: dict[tuple[str, str, str | None], list[Troubled]] = {}
    looked: dict[tuple[tuple[str, str], bool], int] = {}
    for one in found:
        alike.setdefault((one.source, one.query_name, one.reason), []).append(one)
        kept = (one.dataset, one.verdict_at is None)
        looked[kept] = looked.get(kept, 0) + 1
    full = {name for (name, _), many in looked.items() if many >= LOOKED}
    return [_rejection(*key, some, some[0].dataset in full) for key, some in list(alike.items())[:limit]]


def _rejection(source: str, query: str, reason: str | None, some: list[Troubled], more: bool) -> Rejection:
    first = some[0]
    said = (first.error or "").strip().partition("\n")[0]
    return Rejection(
        source, query, reason, len(some), more,
        terminal=sum(one.seen == "terminal" for one in some), readable=sum(one.seen == "refresh_failed" for one in some),
        last_at=first.verdict_at, partition=str(first.partition), error=redact_text(said) if said else None,
    )  # fmt: skip
