"""Datasets: those of an app, by source and query."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from ...ledger.ledger import Ledger
from ...storage.registry import Registry as Stores
from ...storage.store import Store
from ..key import Day, named
from ..queries import Register
from ..reader import Reader, Reading
from .definition import Extract, Extraction, dataset_name, extraction

if TYPE_CHECKING:
    from ..reader import Reader


class Datasets:
    """The datasets of an app. Threads may share it, and so may forked children."""

    def __init__(self, ledger: Callable[[], Ledger], stores: Callable[[], Stores], /) -> None:
        self._ledger, self._stores = ledger, stores
        self._known: dict[tuple[str, str], Extraction] = {}

    def decorator(self, source: str, query: str, /, *, raw: str | Store, **told: Any) -> Callable[[Callable[..., Any]], Dataset]:
        """What registers an extraction, on these terms."""
        name = dataset_name(named("source", source), named("query", query))

        def decorated(fn: Callable[..., Any]) -> Dataset:
            made = extraction(fn, source, query, store=self._store(name, raw), **told)
            self._add(made)
            reader = Reader(source, query, lambda: Register(self._ledger()), made.store)
            return Dataset(made, reader)

        return decorated

    def _add(self, new: Extraction) -> None:
        known = self._known.get(new.terms.dataset)
        if known is not None and not hasattr(sys, "ps1"):  # who sits at a prompt defines it again and again
            raise ValueError(f"there is a dataset {new.name} already, {known.place}; {new.place} needs another query or source")
        self._known[new.terms.dataset] = new

    def _store(self, name: str, raw: object) -> Callable[[], Store]:
        if isinstance(raw, Store):
            return lambda: raw
        if not isinstance(raw, str):
            raise TypeError(f"{name}: raw= is a store, or the name of one of App(stores=...), not {type(raw).__name__}: {raw!r}")
        known = self._stores().config.stores
        if raw not in known:
            raise ValueError(f"{name}: raw={raw!r} is not a store of this app; App(stores=...) has {', '.join(known) or 'none'}")
        return lambda: self._stores().get_store(raw)

    def find(self, source: str, query: str, /) -> Extraction:
        """The one; ValueError names those that there are."""
        found = self._known.get((source, query))
        if found is None:
            there = ", ".join(one.name for one in self) or "none at all"
            raise ValueError(f"unknown dataset {dataset_name(source, query)}; known: {there}")
        return found

    def chosen(self, only: Collection[str] | None, /) -> list[Extraction]:
        """Those of a worker: all, or those that are named."""
        return [one for one in self if only is None or one.name in only]

    def __iter__(self) -> Iterator[Extraction]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)


class Dataset:
    """A registered dataset, for consumers to read. Made by `@app.dataset(...)`.

    Operators retry, reprocess and backfill it. Threads and event loops may share it.

    Attributes:
        source: Name of the source.
        query: Name of the query.
        function: The extraction function.
    """

    def __init__(self, extraction: Extraction, reader: Reader) -> None:
        self.source = extraction.terms.source
        self.query = extraction.terms.query_name
        self.function: Extract = extraction.fn
        self._reader = reader
        self.__doc__ = extraction.fn.__doc__

    def read(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """Return the accepted data of a customer, and the days that are missing.

        Args:
            customer_id: The customer.
            since: First day.
            until: Last day, inclusive. Default: one day.

        Returns:
            Files and gaps.
        """
        return self._reader.read(customer_id, since, until)

    async def aread(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """Return the accepted data of a customer, from async code. The files are read by sync calls.

        Args:
            customer_id: The customer.
            since: First day.
            until: Last day, inclusive. Default: one day.

        Returns:
            Files and gaps.
        """
        from asyncio import to_thread  # noqa: PLC0415  # only where there is a loop

        return await to_thread(self._reader.read, customer_id, since, until)

    def __repr__(self) -> str:
        return f"<Dataset {self.source}/{self.query}>"
