"""Tests of seeking, as readers of Parquet files do, for every backend."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pytest
from pyarrow import parquet

from redrive.storage import Store

SIZE = 5 * 1024 * 1024 + 17
DATA = random.Random(7).randbytes(SIZE)


class SeekableReads:
    """Mixed into the suite of a backend, whose `store` it uses."""

    @pytest.mark.req("S-12")
    def test_a_reader_seeks_to_any_byte(self, store: Store) -> None:
        store.write("big", DATA)
        draw = random.Random(3)
        with store.read("big") as file:
            assert file.seekable()
            assert file.read(10) == DATA[:10]
            assert file.seek(0, io.SEEK_END) == SIZE
            assert file.read() == b""
            assert file.seek(-8, io.SEEK_END) == SIZE - 8
            assert file.read() == DATA[-8:]
            for _ in range(6):
                at, size = draw.randrange(SIZE), draw.choice((1, 1000, 1_500_000))
                assert file.seek(at) == at
                assert file.read(size) == DATA[at : at + size]
                assert file.tell() == min(SIZE, at + size)
            assert file.seek(0) == 0
            assert file.read() == DATA
            file.seek(SIZE + 5)
            assert file.read(1) == b""

    @pytest.mark.req("S-12")
    def test_a_parquet_file_is_read_from_a_store(self, store: Store) -> None:
        table = pa.table({"id": list(range(50_000)), "text": [f"row {number}" for number in range(50_000)]})
        with store.writer("table.parquet") as out:
            parquet.write_table(table, out, row_group_size=10_000)
        with store.read("table.parquet") as file:
            assert parquet.read_table(file, columns=["text"]).equals(table.select(["text"]))
        with store.read("table.parquet") as file:
            assert parquet.ParquetFile(file).read_row_group(3).equals(table.slice(30_000, 10_000))
