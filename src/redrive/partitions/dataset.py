"""Dataset: what a program holds of an extraction: a way to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .extraction import Extract, Extraction
from .partition import Day
from .reading import Reading

if TYPE_CHECKING:
    from .reader import Reader


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
