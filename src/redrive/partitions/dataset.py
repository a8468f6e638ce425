"""Dataset: what a program holds of an extraction: a way to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .extraction import Extract, Extraction
from .partition import Day
from .reading import Reading

if TYPE_CHECKING:
    from .reader import Reader


class Dataset:
    """What a consumer may do with it: read. Retry, reprocess and backfill are an operator's. Threads and loops may share it."""

    def __init__(self, extraction: Extraction, reader: Reader) -> None:
        self.source = extraction.terms.source
        self.query = extraction.terms.query_name
        self.function: Extract = extraction.fn
        self._reader = reader
        self.__doc__ = extraction.fn.__doc__

    def read(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """What was accepted of one day, or of a range with both ends in it; and what is missing, and why."""
        return self._reader.read(customer_id, since, until)

    async def aread(self, customer_id: str, since: Day, until: Day | None = None, /) -> Reading:
        """The same for event loops. What it gives is read by plain calls."""
        from asyncio import to_thread  # noqa: PLC0415  # only where there is a loop

        return await to_thread(self._reader.read, customer_id, since, until)

    def __repr__(self) -> str:
        return f"<Dataset {self.source}/{self.query}>"
