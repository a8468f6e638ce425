"""Ring: the last records, in memory, for looking back after something went wrong."""

from __future__ import annotations

import sys
from collections import deque
from os import PathLike
from types import TracebackType
from typing import Any, TypeAlias

from .record import Record

Address: TypeAlias = str | PathLike[str]


class Ring:
    """A sink that keeps the last records. Any thread may read it while others write."""

    def __init__(self, size: int, dump_to: Address | None = None) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"the size of a ring is a whole number from 1 on: {size!r}")
        self._records: deque[Record] = deque(maxlen=size)
        if dump_to is not None:
            _dump_after_crash(self, dump_to)

    def __call__(self, record: Record, /) -> None:
        self._records.append(record)

    @property
    def records(self) -> list[Record]:
        """The records, oldest first."""
        return list(self._records)

    def dump(self, path: Address, /) -> int:
        """Write the records as JSON Lines; returns how many."""
        import json  # noqa: PLC0415  # not needed while nothing goes wrong

        records = self.records
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123  # pathlib costs an import that most never need
            for record in records:
                row = {"kind": record.kind, "at": record.at.isoformat(), **record.fields}
                file.write(json.dumps(row, default=str, ensure_ascii=False) + "\n")
        return len(records)


def ring(size: int = 10_000, /, *, dump_to: Address | None = None) -> Ring:
    """A sink that keeps the last `size` records; with `dump_to`, written there when the program dies of an exception."""
    return Ring(size, dump_to)


def _dump_after_crash(kept: Ring, path: Address) -> None:
    import atexit  # noqa: PLC0415  # not needed while nothing goes wrong

    crashed = False
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        nonlocal crashed
        crashed = True
        return before(kind, error, trace)

    def at_exit() -> None:
        if crashed:
            kept.dump(path)

    sys.excepthook = hook
    atexit.register(at_exit)
