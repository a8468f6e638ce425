"""Ring: the last records, in memory, for looking back after something went wrong."""

from __future__ import annotations

import sys
from collections import deque
from os import PathLike, fspath
from types import TracebackType
from typing import Any, TypeAlias

from ..core.seconds import whole
from .record import Record

Address: TypeAlias = str | PathLike[str]


class Ring:
    """A sink that keeps the last records in memory. Any thread may read it."""

    def __init__(self, size: int, dump_to: Address | None = None) -> None:
        self._records: deque[Record] = deque(maxlen=whole("size", size))
        if dump_to is not None:
            _dump_after_crash(self, fspath(dump_to))

    def __call__(self, record: Record, /) -> None:
        self._records.append(record)

    @property
    def records(self) -> list[Record]:
        """The records, oldest first."""
        return list(self._records)

    def dump(self, path: Address, /) -> int:
        """Write the records to a file as JSON Lines.

        Args:
            path: The file.

        Returns:
            The number of records.
        """
        import json  # noqa: PLC0415  # not needed while nothing goes wrong

        records = self.records
        # Half a character, such as an undecodable file name brings along, is written as JSON's own escape.
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123  # pathlib is an import more
            for record in records:
                own = {"kind": record.kind, "at": record.at.isoformat()}
                row = {**own, **record.fields, **own}  # first, and not replaced by a label of the same name
                file.write(json.dumps(row, default=str, ensure_ascii=False) + "\n")
        return len(records)


def ring(size: int = 10_000, /, *, dump_to: Address | None = None) -> Ring:
    """Return a sink that keeps the last records in memory.

    Args:
        size: Maximum number of records.
        dump_to: File to which the records are written if the program ends with an exception.

    Returns:
        The sink.
    """
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
