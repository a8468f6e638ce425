"""Reading: accepted data of a range of days, and what is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Self

from ..core.text import pluralise
from ..errors import Incomplete
from .gap import Gap
from .raw import File


class Reading:
    """Accepted data of a range of days, and the gaps. Threads may share it.

    It describes the moment of reading. Runs do not change.

    Attributes:
        files: The files, ordered by day.
        missing: The gaps.
    """

    def __init__(self, files: Sequence[File], missing: Sequence[Gap]) -> None:
        self.files: Sequence[File] = tuple(files)
        """In the order of their days."""
        self.missing: Sequence[Gap] = tuple(missing)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of all files: JSON Lines, or Parquet with pyarrow.

        Yields:
            The rows.
        """
        for file in self.files:
            yield from file.read()

    def complete(self) -> Self:
        """Return this reading if no day is missing.

        Returns:
            The reading itself.

        Raises:
            Incomplete: A day is missing. Its `gaps` list all of them.
        """
        if not self.missing:
            return self
        first = self.missing[0]
        why = ", ".join(f"{many} {reason.replace('_', ' ')}" for reason, many in Counter(one.why for one in self.missing).items())
        days = pluralise(len(self.missing), "day is", "days are")
        raise Incomplete(f"{days} missing ({why}); first {first.partition}: {first.detail}", gaps=list(self.missing))

    def __repr__(self) -> str:
        return f"<Reading: {pluralise(len(self.files), 'file')}, {pluralise(len(self.missing), 'day')} missing>"
