"""The datasets of an app, by source and query."""

from __future__ import annotations

import sys
from asyncio import to_thread
from collections.abc import Callable, Collection, Iterator
from typing import Any

from ...ledger.ledger import Ledger
from ...storage.registry import Registry as Stores
from ...storage.store import Store
from ..key import Day, check_name
from ..queries import PartitionQueries
from ..reader import Reader, Reading
from .definition import Extract, Extraction, dataset_name, define_extraction


class Datasets:
    """The datasets of an app. Threads and forked children may share it."""

    def __init__(self, ledger: Callable[[], Ledger], stores: Callable[[], Stores], /) -> None:
        self._ledger, self._stores = ledger, stores
        self._extractions: dict[tuple[str, str], Extraction] = {}

    def decorator(
        self, source: str, query: str, /, *, raw: str | Store, **options: Any
    ) -> Callable[[Callable[..., Any]], Dataset]:
        """Return a decorator that registers an extraction."""
        name = dataset_name(check_name("source", source), check_name("query", query))

        def decorate(fn: Callable[..., Any]) -> Dataset:
            store = self._store(name, raw)
            extraction = define_extraction(fn, source, query, store=store, **options)
            self._add(extraction)
            reader = Reader(
                source, query, lambda: PartitionQueries(self._ledger()), extraction.store
            )
            return Dataset(extraction, reader)

        return decorate

    def _add(self, new: Extraction) -> None:
        known = self._extractions.get(new.limits.dataset)
        if known is not None and not hasattr(sys, "ps1"):  # a user at a prompt redefines functions
            raise ValueError(
                f"there is a dataset {new.name} already, {known.place}; "
                f"{new.place} needs another query or source"
            )
        self._extractions[new.limits.dataset] = new

    def _store(self, name: str, raw: object) -> Callable[[], Store]:
        if isinstance(raw, Store):
            return lambda: raw
        if not isinstance(raw, str):
            raise TypeError(
                f"{name}: raw= is a store, or the name of one of App(stores=...), "
                f"not {type(raw).__name__}: {raw!r}"
            )
        known = self._stores().config.stores
        if raw not in known:
            raise ValueError(
                f"{name}: raw={raw!r} is not a store of this app; "
                f"App(stores=...) has {', '.join(known) or 'none'}"
            )
        return lambda: self._stores().get_store(raw)

    def find(self, source: str, query: str, /) -> Extraction:
        """Return a dataset.

        Raises:
            ValueError: It is unknown. The message names the known ones.
        """
        extraction = self._extractions.get((source, query))
        if extraction is None:
            known = ", ".join(each.name for each in self) or "none at all"
            raise ValueError(f"unknown dataset {dataset_name(source, query)}; known: {known}")
        return extraction

    def select(self, only: Collection[str] | None, /) -> list[Extraction]:
        """Return the datasets of a worker: all, or those that are named."""
        return [each for each in self if only is None or each.name in only]

    def __iter__(self) -> Iterator[Extraction]:
        return iter(self._extractions.values())

    def __len__(self) -> int:
        return len(self._extractions)


class Dataset:
    """A registered dataset, for consumers to read. Made by `@app.dataset(...)`.

    Operators retry, reprocess and backfill it. Threads and event loops may share it.

    Attributes:
        source: Name of the source.
        query: Name of the query.
        function: The extraction function.
    """

    def __init__(self, extraction: Extraction, reader: Reader) -> None:
        self.source = extraction.limits.source
        self.query = extraction.limits.query_name
        self.function: Extract = extraction.fn
        self._reader = reader
        self.__doc__ = extraction.fn.__doc__

    def read(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """Return the accepted data of a customer, and the days that are missing.

        Args:
            customer_id: Id of the customer.
            since: First day.
            until: Last day, inclusive. Default: one day.

        Returns:
            Files and gaps.
        """
        return self._reader.read(customer_id, since, until)

    async def aread(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """Return the accepted data of a customer, from async code.

        The files are read by sync calls.

        Args:
            customer_id: Id of the customer.
            since: First day.
            until: Last day, inclusive. Default: one day.

        Returns:
            Files and gaps.
        """
        return await to_thread(self._reader.read, customer_id, since, until)

    def __repr__(self) -> str:
        return f"<Dataset {self.source}/{self.query}>"
