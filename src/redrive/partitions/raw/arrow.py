"""Files of runs as Arrow: batches in bounded memory, or one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from ...core.lazy import EXTRAS
from ...storage.store import SPOOL_BYTES
from . import parquet
from .files import File

BATCH_ROWS = 65_536
"""Rows of a batch."""


def import_library(name: str, method: str, /) -> Any:
    """Import an optional library, or raise an ImportError with the command that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{name}.".startswith(f"{missing.name}."):
            raise
        install = f'pip install "redrive[{EXTRAS[name.partition(".")[0]]}]"'
        raise ImportError(f"{method}() needs {name}: {install}", name=missing.name) from missing


def read_batches(files: Iterable[File], method: str, /) -> Iterator[Any]:
    """Yield the rows of files as record batches, each with the columns of its own rows.

    Columns have the values of `File.read`: text in JSON stays text. The bytes are compared with
    their digest.

    Raises:
        TypeError: A file has no rows, or a column has values of several types.
    """
    arrow = import_library("pyarrow", method)
    for file in files:
        if file.name.endswith(parquet.ENDINGS):
            yield from _parquet_batches(file, method)
            continue
        rows = file.read()  # Raises for other formats.
        while chunk := list(islice(rows, BATCH_ROWS)):
            yield _to_batch(arrow, chunk, file.name)


def read_table(files: Iterable[File], method: str, /) -> Any:
    """Return all rows as one table, with the columns of all files.

    A column that a file lacks is null there. Numbers of several types become the wider one.
    """
    arrow = import_library("pyarrow", method)
    tables = [arrow.Table.from_batches([batch]) for batch in read_batches(files, method)]
    if not tables:
        return arrow.table({})
    try:
        return arrow.concat_tables(tables, promote_options="permissive")
    except (arrow.ArrowTypeError, arrow.ArrowInvalid) as error:
        raise TypeError(
            f"{method}(): a column has different types in several files: {error}; "
            "read them one by one with batches()"
        ) from error


def _parquet_batches(file: File, method: str) -> Iterator[Any]:
    # Copied first, as a whole and in order: only then is the digest compared.
    library = import_library("pyarrow.parquet", method)
    with file.open() as opened, SpooledTemporaryFile(SPOOL_BYTES) as copy:
        while piece := opened.read(parquet.CHUNK_BYTES):
            copy.write(piece)
        copy.seek(0)
        try:
            table = library.ParquetFile(cast(BinaryIO, copy))
        except Exception as error:
            raise ValueError(f"{file.name} is not a Parquet file: {error}") from error
        count = 0
        for batch in table.iter_batches(BATCH_ROWS):
            count += 1
            yield batch
        if not count:  # The columns count, even without rows.
            record_batch = import_library("pyarrow", method).RecordBatch
            yield record_batch.from_pylist([], schema=table.schema_arrow)


def _to_batch(arrow: Any, rows: list[dict[str, Any]], name: str) -> Any:
    columns = dict.fromkeys(column for row in rows for column in row)
    arrays = []
    for column in columns:
        try:
            arrays.append(arrow.array([row.get(column) for row in rows]))
        except (arrow.ArrowTypeError, arrow.ArrowInvalid, OverflowError) as error:
            raise TypeError(
                f"{name}: column {column!r} does not fit one Arrow type: {error}; "
                "read it with rows()"
            ) from error
    return arrow.RecordBatch.from_arrays(arrays, names=list(columns))
