"""Reading: accepted data of a range of days, and what is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Self

from ..core.amount import amount
from ..errors import Incomplete
from .gap import Gap
from .raw import File


class Reading:
    """Accepted data of a range, and what is not there. As it was when it was read: runs don't change. Threads may share it."""

    def __init__(self, files: Sequence[File], missing: Sequence[Gap]) -> None:
        self.files: Sequence[File] = tuple(files)
        """In the order of their days."""
        self.missing: Sequence[Gap] = tuple(missing)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of all files, one at a time: of JSON Lines, and of Parquet where pyarrow is installed."""
        for file in self.files:
            yield from file.read()

    def complete(self) -> Self:
        """Itself; `errors.Incomplete` where something is missing."""
        if not self.missing:
            return self
        first = self.missing[0]
        why = ", ".join(f"{many} {reason.replace('_', ' ')}" for reason, many in Counter(one.why for one in self.missing).items())
        days = amount(len(self.missing), "day is", "days are")
        raise Incomplete(f"{days} missing ({why}); first {first.partition}: {first.detail}", gaps=list(self.missing))

    def __repr__(self) -> str:
        return f"<Reading: {amount(len(self.files), 'file')}, {amount(len(self.missing), 'day')} missing>"
