"""`Ring`: a sink that keeps the last records in memory, to look at after a failure."""

from __future__ import annotations

import sys
from collections import deque
from os import PathLike, fspath
from types import TracebackType
from typing import Any, TypeAlias

from ...core.seconds import whole_number
from ..record import Record

FilePath: TypeAlias = str | PathLike[str]


class Ring:
    """A sink that keeps the last records in memory. Any thread may read it."""

    def __init__(self, size: int, dump_to: FilePath | None = None) -> None:
        self._records: deque[Record] = deque(maxlen=whole_number("size", size))
        if dump_to is not None:
            _dump_after_crash(self, fspath(dump_to))

    def __call__(self, record: Record, /) -> None:
        self._records.append(record)

    @property
    def records(self) -> list[Record]:
        """The records, oldest first."""
        return list(self._records)

    def dump(self, path: FilePath, /) -> int:
        """Write the records to a file as JSON Lines.

        Args:
            path: The file.

        Returns:
            The number of records.
        """
        import json  # noqa: PLC0415  # only needed after a failure

        records = self.records
        # A lone surrogate, such as from an undecodable file name, is written as an escape.
        # `open` saves the import of pathlib.
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            for record in records:
                header = {"kind": record.kind, "at": record.at.isoformat()}
                # Twice: the first sets the order, the second wins over fields of the same name.
                row = {**header, **record.fields, **header}
                file.write(json.dumps(row, default=str, ensure_ascii=False) + "\n")
        return len(records)


def ring(size: int = 10_000, /, *, dump_to: FilePath | None = None) -> Ring:
    """Return a sink that keeps the last records in memory.

    Args:
        size: Maximum number of records.
        dump_to: File to which the records are written if the program ends with an exception.

    Returns:
        The sink.
    """
    return Ring(size, dump_to)


def _dump_after_crash(ring: Ring, path: FilePath) -> None:
    import atexit  # noqa: PLC0415  # only needed with dump_to=

    has_crashed = False
    previous_hook = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        nonlocal has_crashed
        has_crashed = True
        return previous_hook(kind, error, trace)

    def at_exit() -> None:
        if has_crashed:
            ring.dump(path)

    sys.excepthook = hook
    atexit.register(at_exit)
