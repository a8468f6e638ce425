"""The conformance suite of storage: what every backend must do. Run it on a backend of yours:

class TestMine(StorageConformance):
    @pytest.fixture
    def store(self):
        yield Store(Mine("mine", ...))        # empty, and nobody else's
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from random import Random

import pytest

from ..errors import AlreadyExists, NotFound, PathInvalid, RedriveError, StorageError
from ..storage import FileInfo, Store, transfer
from ..storage.memory import Memory

BIG = 5 * 1024 * 1024 + 7
"""More than one piece of every backend."""
NAMES = (
    "a",
    "a/b/c/d/e.txt",
    "with space/and  two",
    "täst/日本語/🙂.csv",
    "e\u0301/decomposed",
    "percent%20/plus+and&=?#hash",
    "quote'\"and;semicolon",
    "UPPER/lower",
    ".hidden/.file",
    "dots.../..three",
    "-dash/--help",
    "~tilde/$dollar/*star[1]",
)
"""Paths that are well formed and easily go wrong."""
BAD = (
    "",
    "/",
    "/absolute",
    "folder/",
    "..",
    "../out",
    "a/../../out",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "nul\x00byte",
    "new\nline",
    "back\\slash",
    "..\\out",
    "lone\udcffsurrogate",
    ".redrive-mine",
    "x" * 1025,
    "é" * 513,
)


@cache
def body(size: int, seed: int = 0) -> bytes:
    """Bytes that are the same in every run."""
    return Random(seed).randbytes(size)


class StorageConformance:
    """One behaviour on every backend. A subclass gives the fixture `store`."""

    unsupported_names: tuple[str, ...] = ()
    """Those of NAMES that the service behind the backend cannot hold; they must raise PathInvalid."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """The store to try: empty, and nobody else's."""
        raise NotImplementedError("give the suite a fixture `store`")

    # ---- write and read ----

    @pytest.mark.parametrize("size", [0, 1, 4096, BIG])
    def test_what_was_written_is_read(self, store: Store, size: int) -> None:
        store.write("file", body(size))
        assert store.read_bytes("file") == body(size)
        with store.read("file") as file:
            assert file.read() == body(size)

    def test_a_file_is_read_in_pieces(self, store: Store) -> None:
        store.write("file", body(BIG))
        with store.read("file") as file:
            pieces = list(iter(lambda: file.read(300_000), b""))
            assert file.read(1) == b""
        assert b"".join(pieces) == body(BIG)

    def test_a_file_is_read_by_lines(self, store: Store) -> None:
        store.write("file", b"one\ntwo\n\nfour")
        with store.read("file") as file:
            assert list(file) == [b"one\n", b"two\n", b"\n", b"four"]

    def test_a_reader_that_stops_early_does_no_harm(self, store: Store) -> None:
        store.write("file", body(BIG))
        with store.read("file") as file:
            assert file.read(10) == body(BIG)[:10]
        assert store.read_bytes("file") == body(BIG)

    def test_two_readers_at_once(self, store: Store) -> None:
        store.write("one", body(BIG, 1))
        store.write("two", body(BIG, 2))
        with store.read("one") as first, store.read("two") as second:
            half = BIG // 2
            got = first.read(half), second.read(half)
            got = got[0] + first.read(), got[1] + second.read()
        assert got == (body(BIG, 1), body(BIG, 2))

    @pytest.mark.parametrize("how", ["write", "write_atomic", "create"])
    @pytest.mark.parametrize("form", ["bytes", "bytearray", "memoryview", "file", "pipe", "generator", "nothing"])
    def test_data_of_every_form(self, store: Store, how: str, form: str) -> None:
        data = b"" if form == "nothing" else body(BIG)
        store_it = getattr(store, how)
        match form:
            case "bytearray":
                store_it("file", bytearray(data))
            case "memoryview":
                store_it("file", memoryview(data))
            case "file":
                whole = io.BytesIO(b"skip" + data)
                whole.seek(4)
                store_it("file", whole)  # from where it stands
            case "pipe":
                store_it("file", _Pipe(data))
            case "generator":
                store_it("file", (data[at : at + 99_991] for at in range(0, len(data), 99_991)))
            case _:
                store_it("file", data)
        assert store.read_bytes("file") == data

    @pytest.mark.parametrize("how", ["write", "write_atomic"])
    def test_a_file_is_replaced(self, store: Store, how: str) -> None:
        for data in (body(BIG), b"short", b"", body(70_000)):
            getattr(store, how)("a/file", data)
            assert store.read_bytes("a/file") == data
        assert list(store.files()) == ["a/file"]

    def test_progress_counts_every_byte(self, store: Store) -> None:
        moved: list[int] = []
        store.write("file", io.BytesIO(body(BIG)), progress=moved.append)
        assert sum(moved) == BIG
        assert len(moved) > 1

    def test_a_pushed_file_appears_at_the_end(self, store: Store) -> None:
        with store.writer("file") as file:
            file.write(b"one ")
            assert not store.exists("file")
            file.write(b"two")
        assert store.read_bytes("file") == b"one two"
        with pytest.raises(ZeroDivisionError), store.writer("other") as file:
            file.write(b"half")
            raise ZeroDivisionError
        assert list(store.files()) == ["file"]
        with pytest.raises(AlreadyExists), store.writer("file", "create") as file:
            file.write(b"three")
        assert store.read_bytes("file") == b"one two"

    def test_text_is_refused(self, store: Store) -> None:
        with pytest.raises(TypeError, match="bytes, not text"):
            store.write("file", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="binary mode"):
            store.write("file", io.StringIO("text"))  # type: ignore[arg-type]
        assert not store.exists("file")

    @pytest.mark.parametrize("how", ["write_atomic", "create"])
    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_a_source_that_fails_leaves_nothing(self, store: Store, how: str, after: int) -> None:
        if how == "write_atomic":
            store.write("file", b"old")

        def source() -> Iterator[bytes]:
            yield from (body(2_000_000, number) for number in range(after))
            raise OSError(28, "the source's own error")

        with pytest.raises(OSError, match="the source's own error") as caught:
            getattr(store, how)("file", source())
        assert not isinstance(caught.value, RedriveError)
        assert list(store.files()) == (["file"] if how == "write_atomic" else [])
        assert how == "create" or store.read_bytes("file") == b"old"

    # ---- only if absent ----

    def test_create_refuses_what_is_there(self, store: Store) -> None:
        store.create("a/file", b"first")
        with pytest.raises(AlreadyExists) as caught:
            store.create("a/file", b"second")
        assert caught.value.path.endswith("a/file")
        assert caught.value.backend == store.backend.name
        assert store.read_bytes("a/file") == b"first"
        store.delete("a/file")
        store.create("a/file", b"third")
        assert store.read_bytes("a/file") == b"third"

    def test_of_many_creators_one_wins(self, store: Store) -> None:
        if not store.capabilities.exclusive_create:
            pytest.skip("this backend says that it cannot: capabilities.exclusive_create is False")
        for turn in range(3):
            path, ready = f"turn-{turn}", threading.Barrier(6)

            def creator(number: int, path: str = path, ready: threading.Barrier = ready) -> bool:
                ready.wait(60)
                try:
                    store.create(path, body(50_000, number))
                except AlreadyExists:
                    return False
                return True

            with ThreadPoolExecutor(6) as threads:
                won = list(threads.map(creator, range(6)))
            assert won.count(True) == 1
            assert store.read_bytes(path) == body(50_000, won.index(True))

    def test_readers_see_old_or_new(self, store: Store) -> None:
        if not store.capabilities.atomic_write:
            pytest.skip("this backend says that it cannot: capabilities.atomic_write is False")
        whole = {body(300_000, seed) for seed in range(3)}
        store.write_atomic("file", body(300_000, 0))
        ended = threading.Event()

        def reader() -> list[bytes]:
            seen = []
            while not ended.is_set():
                seen.append(store.read_bytes("file"))
            return seen

        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(reader) for _ in range(2)]
            try:
                for turn in range(12):
                    store.write_atomic("file", body(300_000, turn % 3))
            finally:
                ended.set()
            assert all(seen in whole for found in readers for seen in found.result())

    # ---- what is there ----

    def test_nothing_is_there_at_first(self, store: Store) -> None:
        assert list(store.files()) == []
        assert list(store.folders()) == []
        assert list(store.files("missing/folder")) == []
        assert list(store.folders("missing/folder")) == []
        assert not store.exists("file")

    @pytest.mark.parametrize("act", ["read", "read_bytes", "info", "move", "copy"])
    def test_a_missing_file(self, store: Store, act: str) -> None:
        store.write("folder/file", b"x")
        for path in ("missing", "folder/missing", "missing/missing"):
            with pytest.raises(NotFound) as caught:
                getattr(store, act)(path, *(["other"] if act in ("move", "copy") else []))
            assert caught.value.path.endswith(path)
            assert caught.value.backend == store.backend.name
            assert path in str(caught.value)
        assert list(store.files()) == ["folder/file"]

    def test_a_folder_is_no_file(self, store: Store) -> None:
        store.write("folder/file", b"x")
        assert not store.exists("folder")
        for act in (store.info, store.read_bytes):
            with pytest.raises(NotFound):
                act("folder")
        with pytest.raises(NotFound):
            store.read("folder").read()

    def test_info(self, store: Store) -> None:
        store.write("a/file", body(12_345))
        info = store.info("a/file")
        assert (info.path, info.size) == ("a/file", 12_345)
        assert info.modified_at is None or info.modified_at.tzinfo is not None
        assert [each.path for each in store.list()] == ["a/file"]
        assert [each.size for each in store.list()] == [12_345]
        if info.etag is not None:
            store.write("a/file", body(12_345, 1))
            assert store.info("a/file").etag != info.etag

    def test_listing(self, store: Store) -> None:
        paths = ["a", "b/1", "b/2", "b/c/3", "b-c/4", "bb/5", "d/e/f/6"]
        for path in paths:
            store.write(path, path.encode())
        assert sorted(store.files()) == sorted(paths)
        assert sorted(store.files(recursive=False)) == ["a"]
        assert sorted(store.folders()) == ["b", "b-c", "bb", "d"]
        assert sorted(store.files("b")) == ["b/1", "b/2", "b/c/3"]
        assert sorted(store.files("b", recursive=False)) == ["b/1", "b/2"]
        assert sorted(store.folders("b")) == ["b/c"]
        assert sorted(store.folders("d")) == ["d/e"]
        assert sorted(store.files("d/e/f")) == ["d/e/f/6"]
        assert list(store.folders("d/e/f")) == []
        assert list(store.files("a")) == []

    def test_a_listing_has_no_end_of_page(self, store: Store) -> None:
        paths = [f"many/{number:04}" for number in range(250)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda path: store.write(path, b"x"), paths))
        assert sorted(store.files("many")) == paths

    # ---- delete, move, copy ----

    def test_delete(self, store: Store) -> None:
        store.write("a/1", b"x")
        store.write("a/2", b"x")
        store.delete("a/1")
        assert list(store.files()) == ["a/2"]
        store.delete("a/1")
        store.delete("never/there")
        assert not store.exists("a/1")

    @pytest.mark.parametrize("act", ["move", "copy"])
    @pytest.mark.parametrize("size", [0, BIG])
    def test_move_and_copy(self, store: Store, act: str, size: int) -> None:
        store.write("a/source", body(size))
        store.write("there", b"old")
        for target in ("there", "new/folder/target"):
            getattr(store, act)("a/source", target)
            assert store.read_bytes(target) == body(size)
            assert store.exists("a/source") == (act == "copy")
            if act == "move":
                store.move(target, "a/source")
        getattr(store, act)("a/source", "a/source")
        assert store.read_bytes("a/source") == body(size)

    def test_a_copy_is_a_file_of_its_own(self, store: Store) -> None:
        store.write("source", b"one")
        store.copy("source", "target")
        store.write("source", b"two")
        assert store.read_bytes("target") == b"one"

    def test_to_another_store_and_back(self, store: Store) -> None:
        other = Store(Memory())
        store.write("a/file", body(BIG))
        moved: list[int] = []
        transfer(store, "a/file", other, "b", progress=moved.append)
        assert sum(moved) == BIG
        transfer(other, "b", store, "back", how="create")
        assert store.read_bytes("back") == body(BIG)
        with pytest.raises(AlreadyExists):
            transfer(other, "b", store, "back", how="create")
        with pytest.raises(NotFound):
            transfer(other, "missing", store, "file")
        assert sorted(store.files()) == ["a/file", "back"]

    # ---- paths ----

    @pytest.mark.parametrize("name", NAMES, ids=ascii)
    def test_a_name_is_kept_as_it_is(self, store: Store, name: str) -> None:
        if name in self.unsupported_names:
            with pytest.raises(PathInvalid):
                store.write(name, b"x")
            return
        store.write(name, name.encode())
        assert store.read_bytes(name) == name.encode()
        assert list(store.files()) == [name]
        assert store.info(name) == next(iter(store.list())) or store.info(name).path == name
        store.copy(name, "copied")
        store.move("copied", name + "2")
        assert sorted(store.files()) == sorted([name, name + "2"])
        store.delete(name)
        assert not store.exists(name)

    @pytest.mark.parametrize("path", BAD, ids=lambda path: ascii(path)[:30])
    def test_a_bad_path_is_refused(self, store: Store, path: str) -> None:
        store.write("there", b"x")
        for act in (
            lambda: store.write(path, b"x"),
            lambda: store.write_atomic(path, b"x"),
            lambda: store.create(path, b"x"),
            lambda: store.read(path),
            lambda: store.read_bytes(path),
            lambda: store.info(path),
            lambda: store.exists(path),
            lambda: store.delete(path),
            lambda: store.move("there", path),
            lambda: store.move(path, "other"),
            lambda: store.copy("there", path),
            lambda: store.copy(path, "other"),
            lambda: list(store.files(path)) if path else store.info(path),
            lambda: list(store.folders(path)) if path else store.info(path),
        ):
            with pytest.raises(PathInvalid) as caught:
                act()
            assert caught.value.backend == store.backend.name
        assert list(store.files()) == ["there"]

    def test_a_path_of_1024_characters(self, store: Store) -> None:
        path = "/".join(["x" * 63] * 16)
        path += "y" * (1024 - len(path))
        assert len(path) == 1024
        try:
            store.write(path, b"long")
        except PathInvalid:
            return  # the service has a lower limit, and says so
        assert store.read_bytes(path) == b"long"
        assert list(store.files()) == [path]

    def test_a_name_that_is_too_long_for_a_file_system(self, store: Store) -> None:
        try:
            store.write("x" * 1000, b"long")
        except PathInvalid:
            assert not list(store.files())
            return
        assert store.read_bytes("x" * 1000) == b"long"

    def test_a_store_under_a_root_sees_nothing_else(self, store: Store) -> None:
        inner = Store(store.backend, root_path=store.whole("inner/root"))
        store.write("outside", b"x")
        store.write("inner/rooted", b"x")
        inner.write("a/file", b"y")
        assert list(inner.files()) == ["a/file"]
        assert list(inner.folders()) == ["a"]
        assert inner.info("a/file").path == "a/file"
        inner.copy("a/file", "b")
        inner.move("b", "c/d")
        assert sorted(inner.files()) == ["a/file", "c/d"]
        assert not inner.exists("outside")
        assert sorted(store.files()) == ["inner/root/a/file", "inner/root/c/d", "inner/rooted", "outside"]
        with pytest.raises(PathInvalid):
            inner.write("../rooted", b"x")
        with pytest.raises(PathInvalid):
            inner.write("/".join(["x" * 59] * 17), b"x")  # 1,019 bytes, and the root before it

    # ---- the backend ----

    def test_check_says_that_all_is_well(self, store: Store) -> None:
        store.check()

    def test_it_can_be_used_again_after_closing(self, store: Store) -> None:
        store.write("file", b"x")
        store.backend.close()
        store.backend.close()
        assert store.read_bytes("file") == b"x"

    def test_threads_may_share_it(self, store: Store) -> None:
        def work(number: int) -> bool:
            path = f"thread/{number}"
            store.write(path, body(100_000, number))
            found = store.read_bytes(path) == body(100_000, number)
            store.move(path, f"moved/{number}")
            return found and store.info(f"moved/{number}").size == 100_000

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(24)))
        assert len(list(store.files("moved"))) == 24

    def test_errors_are_ours(self, store: Store) -> None:
        with pytest.raises(StorageError) as caught:
            store.read_bytes("missing")
        assert isinstance(caught.value, RedriveError)
        assert isinstance(store.capabilities.atomic_write, bool)
        assert FileInfo("a", 1) == FileInfo("a", 1)


class _Pipe(io.RawIOBase):
    """Bytes from something that cannot seek, in small pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, 65_536) if size >= 0 else 65_536)
