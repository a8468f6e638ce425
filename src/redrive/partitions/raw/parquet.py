"""Parquet: rows of a column file, through pyarrow where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from types import ModuleType
from typing import Any, BinaryIO, cast

from ...storage.store import SPOOL_BYTES

ENDINGS = (".parquet",)
BATCH = 4096
"""Rows that are in memory at a time."""
CHUNK = 1024 * 1024


def rows_of(file: BinaryIO, name: str, /) -> int | None:
    """How many rows a file has, by its footer; None where pyarrow is not there to read it. ValueError: it is no Parquet."""
    try:
        library = _library()
    except ModuleNotFoundError:
        return None
    file.seek(0)
    try:
        return int(library.ParquetFile(file).metadata.num_rows)
    except Exception as wrong:
        raise ValueError(f"{name!r} is named as Parquet, and is none: {wrong}") from wrong


def read(file: BinaryIO, name: str, /) -> Iterator[dict[str, Any]]:
    """The rows of a file, a batch at a time. The footer is at the end, so that it goes through a temporary file first."""
    library = _library()
    with SpooledTemporaryFile(SPOOL_BYTES) as whole:
        while piece := file.read(CHUNK):
            whole.write(piece)
        whole.seek(0)
        try:
            opened = library.ParquetFile(cast(BinaryIO, whole))
        except Exception as wrong:
            raise ValueError(f"{name} is not a Parquet file: {wrong}") from wrong
        for batch in opened.iter_batches(BATCH):
            yield from batch.to_pylist()


def _library() -> ModuleType:
    try:
        from pyarrow import parquet  # noqa: PLC0415  # an extra: only those who have such files need it
    except ModuleNotFoundError:
        raise ModuleNotFoundError('Parquet needs pyarrow: pip install "redrive[s3-pyarrow]", or pyarrow alone') from None
    found: ModuleType = parquet
    return found
