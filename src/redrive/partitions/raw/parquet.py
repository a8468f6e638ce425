"""Parquet files, with pyarrow if it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from types import ModuleType
from typing import Any, BinaryIO, cast

from ...storage.store import SPOOL_BYTES

ENDINGS = (".parquet",)
BATCH_ROWS = 4096
"""Rows in memory at a time."""
CHUNK_BYTES = 1024 * 1024


def count_rows(file: BinaryIO, name: str, /) -> int | None:
    """Return the number of rows by the footer. None: pyarrow is not installed.

    Raises:
        ValueError: It is not a Parquet file.
    """
    try:
        library = _import_parquet()
    except ModuleNotFoundError:
        return None
    file.seek(0)
    try:
        return int(library.ParquetFile(file).metadata.num_rows)
    except Exception as error:
        raise ValueError(f"{name!r} is named as Parquet, and is none: {error}") from error


def read_rows(file: BinaryIO, name: str, /) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, read in batches.

    The footer is at the end, so the file is copied to a temporary file first.
    """
    library = _import_parquet()
    with SpooledTemporaryFile(SPOOL_BYTES) as copy:
        while piece := file.read(CHUNK_BYTES):
            copy.write(piece)
        copy.seek(0)
        try:
            opened = library.ParquetFile(cast(BinaryIO, copy))
        except Exception as error:
            raise ValueError(f"{name} is not a Parquet file: {error}") from error
        for batch in opened.iter_batches(BATCH_ROWS):
            yield from batch.to_pylist()


def _import_parquet() -> ModuleType:
    try:
        from pyarrow import parquet  # noqa: PLC0415  # optional
    except ModuleNotFoundError:
        raise ModuleNotFoundError('Parquet needs pyarrow: pip install "redrive[arrow]"') from None
    library: ModuleType = parquet
    return library
