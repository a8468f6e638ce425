"""The view of a store for fsspec: fsspec's own abstract tests, and the libraries that take a file system."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)
from pyarrow import dataset, parquet
from pyarrow.fs import FSSpecHandler, PyFileSystem

from redrive.errors import PathInvalid, Unavailable
from redrive.storage import FileInfo, Store
from redrive.storage.local import Local
from redrive.storage.memory import Memory
from redrive.storage.obstore import Gcs
from tests.servers.gcs import TOKEN, gcs_server

pytestmark = pytest.mark.req("X-6")


class ViewFixtures(AbstractFixtures):  # type: ignore[misc]  # published without types
    """What fsspec's tests need to know about a file system."""

    @pytest.fixture
    def fs(self) -> Any:
        return Store(Memory()).fsspec()

    @pytest.fixture
    def fs_path(self) -> str:
        return "base"

    @pytest.fixture
    def fs_join(self) -> Any:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False

    @pytest.fixture
    def local_fs(self) -> Any:
        return LocalFileSystem(auto_mkdir=True)

    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        return str(make_path_posix(str(tmp_path)))


class TestCopy(ViewFixtures, AbstractCopyTests): ...  # type: ignore[misc]


class TestGet(ViewFixtures, AbstractGetTests): ...  # type: ignore[misc]


class TestOpen(ViewFixtures, AbstractOpenTests): ...  # type: ignore[misc]


class TestPipe(ViewFixtures, AbstractPipeTests): ...  # type: ignore[misc]


class TestPut(ViewFixtures, AbstractPutTests): ...  # type: ignore[misc]


@pytest.fixture(params=["memory", "local", "gcs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "gcs":
        with gcs_server("lake") as server:
            backend = Gcs("google", bucket="lake", token=TOKEN, endpoint_url=server.url)
            yield Store(backend, root_path="root")
            backend.close()
        return
    yield Store(Memory() if request.param == "memory" else Local(root=str(tmp_path)), root_path="root")


def test_a_view_lists_describes_and_deletes(store: Store) -> None:
    view = store.fsspec()
    store.write("a/b/one", b"1")
    store.write("a/two", b"22")
    assert view.ls("", detail=False) == ["a"]
    assert view.ls("/a/", detail=False) == ["a/b", "a/two"]
    assert view.ls("a/two", detail=False) == ["a/two"]
    assert view.find("") == ["a/b/one", "a/two"]
    assert view.glob("a/*") == ["a/b", "a/two"]
    assert view.du("a") == 3
    assert (view.info("a")["type"], view.info("redrive://a/two")["size"]) == ("directory", 2)
    assert view.modified("a/two") == store.info("a/two").modified_at
    assert view.exists("a/b")
    assert not view.exists("a/c")
    view.mv("a/two", "three")
    view.rm("a", recursive=True)
    assert list(store.files()) == ["three"]


def test_errors_are_those_of_open(store: Store) -> None:
    view = store.fsspec()
    for act in (view.ls, view.info, view.open, view.rm_file, view.rm):
        with pytest.raises(FileNotFoundError):
            act("no")
    store.write("a", b"x")
    for act in (lambda: view.open("a", "xb"), lambda: view.pipe_file("a", b"y", mode="create")):
        with pytest.raises(FileExistsError):
            act()
    with pytest.raises(PathInvalid):
        view.open("../out")
    with pytest.raises(ValueError, match="mode 'ab' is not supported: a store has rb, wb and xb"):
        view.open("a", "ab")
    with pytest.raises(TypeError, match="cannot be pickled"):
        __import__("pickle").dumps(view)
    assert store.read_bytes("a") == b"x"


def test_a_file_appears_when_it_is_closed_and_not_after_an_error(store: Store) -> None:
    view = store.fsspec()
    with view.open("text", "w", encoding="utf-8") as text:
        text.write("täst")
        assert not store.exists("text")
    assert store.read_bytes("text") == "täst".encode()
    with pytest.raises(ZeroDivisionError), view.open("half", "wb") as file:
        file.write(b"half")
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), view.open("half.txt", "w") as text:
        text.write("half")
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), view.open("half.gz", "wb", compression="gzip") as file:
        file.write(b"half")
        raise ZeroDivisionError
    dropped = [view.open("dropped", "wb"), view.open("dropped.gz", "xb", compression="infer")]
    for file in dropped:
        file.write(b"dropped")
    dropped_text = view.open("dropped.txt", "w")
    dropped_text.write("dropped")
    del dropped, file, dropped_text
    assert list(store.files()) == ["text"]


def test_text_that_cannot_be_stored_completely_is_not_stored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    text = store.fsspec().open("full", "w")
    text.write("half")
    monkeypatch.setattr(type(text.buffer), "write", lambda *_: exec("raise OSError(28, 'No space left on device')"))
    with pytest.raises(OSError, match="No space left"):
        text.close()
    assert not store.exists("full")


@pytest.mark.parametrize("compression", [None, "gzip", "bz2", "xz", "zip"])
@pytest.mark.parametrize("mode", ["b", "t"])
def test_a_file_is_written_and_read_compressed_and_as_text(store: Store, compression: str | None, mode: str) -> None:
    view = store.fsspec()
    lines = [f"Zeile {number} äö\n" for number in range(3000)]
    with view.open("file", f"w{mode}", compression=compression, **({"encoding": "utf-8"} if mode == "t" else {})) as file:
        file.writelines(lines if mode == "t" else [line.encode() for line in lines])
    assert (store.read_bytes("file") == "".join(lines).encode()) == (compression is None)
    with view.open("file", "r", compression=compression, encoding="utf-8") as text:
        assert text.readline() == lines[0]
        assert list(text) == lines[1:]


def test_ranges_of_a_file_are_read(store: Store) -> None:
    store.write("a", b"one\ntwo\nthree\n")
    view = store.fsspec()
    assert view.cat_file("a", -6, -1) == b"three"
    assert view.read_block("a", 2, 4, b"\n") == b"two\n"
    assert (view.head("a", 3), view.tail("a", 3)) == (b"one", b"ee\n")


def test_an_outage_is_not_an_absent_file() -> None:
    class Down(Memory):
        def info(self, path: str, /) -> FileInfo:
            raise Unavailable("down", path=path, backend=self.name)

    view = Store(Down()).fsspec()
    for act in (view.exists, view.isfile, view.isdir, view.rm, lambda name: view.open(name, "xb")):
        with pytest.raises(Unavailable):
            act("a")
    assert not Store(Memory()).fsspec().exists("../a")


def test_transactions_are_rejected(store: Store) -> None:
    view = store.fsspec()
    with view.transaction, pytest.raises(ValueError, match="transactions are not supported"):
        view.open("a", "wb")


def test_a_read_only_view_changes_nothing(store: Store) -> None:
    store.write("a", b"x")
    view = store.fsspec(read_only=True)
    for act, arguments in (
        (view.open, ("b", "wb")),
        (view.pipe_file, ("b", b"y")),
        (view.rm_file, ("a",)),
        (view.rm, ("a",)),
        (view.cp_file, ("a", "b")),
        (view.mv, ("a", "b")),
    ):
        with pytest.raises(PermissionError, match="this view is read-only"):
            act(*arguments)
    assert view.cat_file("a", 0, 1) == b"x"
    assert list(store.files()) == ["a"]


def test_pyarrow_duckdb_polars_and_pandas_read_through_a_view(store: Store) -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    view = store.fsspec()
    table = pa.table({"id": [1, 2, 3]})
    for day in ("2026-01-30", "2026-01-31"):
        with view.open(f"t/day={day}/part.parquet", "wb") as file:
            parquet.write_table(table, file)
    arrow = dataset.dataset("t", filesystem=PyFileSystem(FSSpecHandler(view)), partitioning="hive").to_table()
    assert sorted(arrow.column_names) == ["day", "id"]
    assert arrow.num_rows == 6
    with duckdb.connect() as connection:
        connection.register_filesystem(view)
        query = (
            "SELECT day, sum(id) FROM read_parquet('redrive://t/*/*.parquet', hive_partitioning=true) GROUP BY day ORDER BY day"
        )
        assert [(str(day), total) for day, total in connection.sql(query).fetchall()] == [("2026-01-30", 6), ("2026-01-31", 6)]
    with view.open("t/day=2026-01-31/part.parquet") as file:
        assert pl.read_parquet(file)["id"].to_list() == [1, 2, 3]
    with view.open("t/day=2026-01-31/part.parquet") as file:
        assert file.seek(0, io.SEEK_END) > 0
        assert pd.read_parquet(file)["id"].tolist() == [1, 2, 3]


def test_a_missing_fsspec_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r'pip install "redrive\[fsspec\]"'):
        Store(Memory()).fsspec()
