"""The conformance suite of storage: the behaviour of every backend. Run it on your own backend:

class TestMyBackend(StorageConformance):
    @pytest.fixture
    def store(self):
        yield Store(MyBackend("mine", ...))        # empty, and used by this test only
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

LARGE_BYTES = 5 * 1024 * 1024 + 7
"""Larger than one piece of every backend."""
VALID_PATHS = (
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
"""Valid paths that backends often treat wrongly."""
INVALID_PATHS = (
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
def sample_bytes(size: int, seed: int = 0) -> bytes:
    """Return random bytes that are the same in every run."""
    return Random(seed).randbytes(size)


class UnseekableFile(io.RawIOBase):
    """Bytes of a file that cannot seek, such as a pipe, in small pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self._data.read(min(size, 65_536) if size >= 0 else 65_536)


class WritingTests:
    """Write, read and replace files."""

    @pytest.mark.parametrize("size", [0, 1, 4096, LARGE_BYTES])
    def test_read_returns_the_written_bytes(self, store: Store, size: int) -> None:
        store.write("file", sample_bytes(size))
        assert store.read_bytes("file") == sample_bytes(size)
        with store.read("file") as file:
            assert file.read() == sample_bytes(size)

    def test_a_file_is_read_in_pieces(self, store: Store) -> None:
        store.write("file", sample_bytes(LARGE_BYTES))
        with store.read("file") as file:
            pieces = list(iter(lambda: file.read(300_000), b""))
            assert file.read(1) == b""
        assert b"".join(pieces) == sample_bytes(LARGE_BYTES)

    def test_a_file_is_read_by_lines(self, store: Store) -> None:
        store.write("file", b"one\ntwo\n\nfour")
        with store.read("file") as file:
            assert list(file) == [b"one\n", b"two\n", b"\n", b"four"]

    def test_a_reader_may_stop_early(self, store: Store) -> None:
        store.write("file", sample_bytes(LARGE_BYTES))
        with store.read("file") as file:
            assert file.read(10) == sample_bytes(LARGE_BYTES)[:10]
        assert store.read_bytes("file") == sample_bytes(LARGE_BYTES)

    def test_two_readers_at_once(self, store: Store) -> None:
        store.write("first", sample_bytes(LARGE_BYTES, 1))
        store.write("second", sample_bytes(LARGE_BYTES, 2))
        with store.read("first") as first, store.read("second") as second:
            half = LARGE_BYTES // 2
            first_data, second_data = first.read(half), second.read(half)
            first_data += first.read()
            second_data += second.read()
        assert first_data == sample_bytes(LARGE_BYTES, 1)
        assert second_data == sample_bytes(LARGE_BYTES, 2)

    @pytest.mark.parametrize("how", ["write", "write_atomic", "create"])
    @pytest.mark.parametrize(
        "form", ["bytes", "bytearray", "memoryview", "file", "pipe", "generator", "nothing"]
    )
    def test_every_type_of_data_is_written(self, store: Store, how: str, form: str) -> None:
        data = b"" if form == "nothing" else sample_bytes(LARGE_BYTES)
        write = getattr(store, how)
        match form:
            case "bytearray":
                write("file", bytearray(data))
            case "memoryview":
                write("file", memoryview(data))
            case "file":
                file = io.BytesIO(b"skip" + data)
                file.seek(4)
                write("file", file)  # From its current position.
            case "pipe":
                write("file", UnseekableFile(data))
            case "generator":
                write("file", (data[i : i + 99_991] for i in range(0, len(data), 99_991)))
            case _:
                write("file", data)
        assert store.read_bytes("file") == data

    @pytest.mark.parametrize("how", ["write", "write_atomic"])
    def test_a_file_is_replaced(self, store: Store, how: str) -> None:
        for data in (sample_bytes(LARGE_BYTES), b"short", b"", sample_bytes(70_000)):
            getattr(store, how)("a/file", data)
            assert store.read_bytes("a/file") == data
        assert list(store.files()) == ["a/file"]

    def test_progress_counts_every_byte(self, store: Store) -> None:
        moved: list[int] = []
        store.write("file", io.BytesIO(sample_bytes(LARGE_BYTES)), progress=moved.append)
        assert sum(moved) == LARGE_BYTES
        assert len(moved) > 1

    def test_a_file_of_writer_appears_when_its_block_ends(self, store: Store) -> None:
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

    def test_text_is_rejected(self, store: Store) -> None:
        with pytest.raises(TypeError, match="bytes, not text"):
            store.write("file", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="binary mode"):
            store.write("file", io.StringIO("text"))  # type: ignore[arg-type]
        assert not store.exists("file")

    @pytest.mark.parametrize("how", ["write", "write_atomic", "create"])
    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_a_source_that_fails_leaves_nothing(self, store: Store, how: str, after: int) -> None:
        if how != "create":
            store.write("file", b"old")

        def source() -> Iterator[bytes]:
            yield from (sample_bytes(2_000_000, number) for number in range(after))
            raise OSError(28, "the source's own error")

        with pytest.raises(OSError, match="the source's own error") as caught:
            getattr(store, how)("file", source())
        assert not isinstance(caught.value, RedriveError)
        # `write` may lose the old file, but never leaves a part of the new one.
        if how == "create" or (how == "write" and not store.exists("file")):
            assert list(store.files()) == []
        else:
            assert list(store.files()) == ["file"]
            assert store.read_bytes("file") == b"old"


class ConcurrencyTests:
    """Exclusive creation, atomic replacement, threads, and reuse after closing."""

    def test_create_rejects_an_existing_file(self, store: Store) -> None:
        store.create("a/file", b"first")
        with pytest.raises(AlreadyExists) as caught:
            store.create("a/file", b"second")
        assert caught.value.path.endswith("a/file")
        assert caught.value.backend == store.backend.name
        assert store.read_bytes("a/file") == b"first"
        store.delete("a/file")
        store.create("a/file", b"third")
        assert store.read_bytes("a/file") == b"third"

    def test_one_of_many_creators_wins(self, store: Store) -> None:
        if not store.capabilities.exclusive_create:
            pytest.skip("capabilities.exclusive_create is False")
        for round_number in range(3):
            path, ready = f"round-{round_number}", threading.Barrier(6)

            def create(number: int, path: str = path, ready: threading.Barrier = ready) -> bool:
                ready.wait(60)
                try:
                    store.create(path, sample_bytes(50_000, number))
                except AlreadyExists:
                    return False
                return True

            with ThreadPoolExecutor(6) as threads:
                won = list(threads.map(create, range(6)))
            assert won.count(True) == 1
            assert store.read_bytes(path) == sample_bytes(50_000, won.index(True))

    def test_readers_get_the_old_or_the_new_bytes(self, store: Store) -> None:
        if not store.capabilities.atomic_write:
            pytest.skip("capabilities.atomic_write is False")
        versions = {sample_bytes(300_000, seed) for seed in range(3)}
        store.write_atomic("file", sample_bytes(300_000, 0))
        is_over = threading.Event()

        def read_until_over() -> list[bytes]:
            contents = []
            while not is_over.is_set():
                contents.append(store.read_bytes("file"))
            return contents

        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(read_until_over) for _ in range(2)]
            try:
                for number in range(12):
                    store.write_atomic("file", sample_bytes(300_000, number % 3))
            finally:
                is_over.set()
            assert all(data in versions for reader in readers for data in reader.result())

    def test_check_passes(self, store: Store) -> None:
        store.check()

    def test_a_closed_backend_can_be_used_again(self, store: Store) -> None:
        store.write("file", b"x")
        store.backend.close()
        store.backend.close()
        assert store.read_bytes("file") == b"x"

    def test_threads_may_share_a_store(self, store: Store) -> None:
        def write_read_move(number: int) -> bool:
            path, target = f"thread/{number}", f"moved/{number}"
            store.write(path, sample_bytes(100_000, number))
            is_equal = store.read_bytes(path) == sample_bytes(100_000, number)
            store.move(path, target)
            return is_equal and store.info(target).size == 100_000

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(write_read_move, range(24)))
        assert len(list(store.files("moved"))) == 24

    def test_errors_are_storage_errors(self, store: Store) -> None:
        with pytest.raises(StorageError) as caught:
            store.read_bytes("missing")
        assert isinstance(caught.value, RedriveError)
        assert isinstance(store.capabilities.atomic_write, bool)
        assert FileInfo("a", 1) == FileInfo("a", 1)


class ListingTests:
    """List, describe, delete, move and copy files."""

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert list(store.files()) == []
        assert list(store.folders()) == []
        assert list(store.files("missing/folder")) == []
        assert list(store.folders("missing/folder")) == []
        assert not store.exists("file")

    @pytest.mark.parametrize("operation", ["read", "read_bytes", "info", "move", "copy"])
    def test_a_missing_file_raises_not_found(self, store: Store, operation: str) -> None:
        store.write("folder/file", b"x")
        for path in ("missing", "folder/missing", "missing/missing"):
            with pytest.raises(NotFound) as caught:
                arguments = ["other"] if operation in ("move", "copy") else []
                getattr(store, operation)(path, *arguments)
            assert caught.value.path.endswith(path)
            assert caught.value.backend == store.backend.name
            assert path in str(caught.value)
        assert list(store.files()) == ["folder/file"]

    def test_a_folder_is_not_a_file(self, store: Store) -> None:
        store.write("folder/file", b"x")
        assert not store.exists("folder")
        for operation in (store.info, store.read_bytes):
            with pytest.raises(NotFound):
                operation("folder")
        with pytest.raises(NotFound):
            store.read("folder").read()

    def test_info_has_size_time_and_etag(self, store: Store) -> None:
        store.write("a/file", sample_bytes(12_345))
        info = store.info("a/file")
        assert (info.path, info.size) == ("a/file", 12_345)
        assert info.modified_at is None or info.modified_at.tzinfo is not None
        assert [file.path for file in store.list()] == ["a/file"]
        assert [file.size for file in store.list()] == [12_345]
        if info.etag is not None:
            store.write("a/file", sample_bytes(12_345, 1))
            assert store.info("a/file").etag != info.etag

    def test_files_and_folders_are_listed(self, store: Store) -> None:
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

    def test_a_listing_continues_after_a_page(self, store: Store) -> None:
        paths = [f"many/{number:04}" for number in range(250)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda path: store.write(path, b"x"), paths))
        assert sorted(store.files("many")) == paths

    def test_delete_ignores_a_missing_file(self, store: Store) -> None:
        store.write("a/1", b"x")
        store.write("a/2", b"x")
        store.delete("a/1")
        assert list(store.files()) == ["a/2"]
        store.delete("a/1")
        store.delete("never/there")
        assert not store.exists("a/1")

    @pytest.mark.parametrize("operation", ["move", "copy"])
    @pytest.mark.parametrize("size", [0, LARGE_BYTES])
    def test_move_and_copy_replace_the_target(
        self, store: Store, operation: str, size: int
    ) -> None:
        store.write("a/source", sample_bytes(size))
        store.write("there", b"old")
        for target in ("there", "new/folder/target"):
            getattr(store, operation)("a/source", target)
            assert store.read_bytes(target) == sample_bytes(size)
            assert store.exists("a/source") == (operation == "copy")
            if operation == "move":
                store.move(target, "a/source")
        getattr(store, operation)("a/source", "a/source")
        assert store.read_bytes("a/source") == sample_bytes(size)

    def test_a_copy_does_not_change_with_its_source(self, store: Store) -> None:
        store.write("source", b"old")
        store.copy("source", "target")
        store.write("source", b"new")
        assert store.read_bytes("target") == b"old"

    def test_transfer_to_another_store_and_back(self, store: Store) -> None:
        other = Store(Memory())
        store.write("a/file", sample_bytes(LARGE_BYTES))
        moved: list[int] = []
        transfer(store, "a/file", other, "b", progress=moved.append)
        assert sum(moved) == LARGE_BYTES
        transfer(other, "b", store, "back", how="create")
        assert store.read_bytes("back") == sample_bytes(LARGE_BYTES)
        with pytest.raises(AlreadyExists):
            transfer(other, "b", store, "back", how="create")
        with pytest.raises(NotFound):
            transfer(other, "missing", store, "file")
        assert sorted(store.files()) == ["a/file", "back"]


class PathTests:
    """Names of files, and roots of stores."""

    unsupported_names: tuple[str, ...] = ()

    @pytest.mark.parametrize("name", VALID_PATHS, ids=ascii)
    def test_a_valid_path_is_kept_unchanged(self, store: Store, name: str) -> None:
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

    @pytest.mark.parametrize("path", INVALID_PATHS, ids=lambda path: ascii(path)[:30])
    def test_an_invalid_path_is_rejected(self, store: Store, path: str) -> None:
        store.write("existing", b"x")
        for operation in (
            lambda: store.write(path, b"x"),
            lambda: store.write_atomic(path, b"x"),
            lambda: store.create(path, b"x"),
            lambda: store.read(path),
            lambda: store.read_bytes(path),
            lambda: store.info(path),
            lambda: store.exists(path),
            lambda: store.delete(path),
            lambda: store.move("existing", path),
            lambda: store.move(path, "other"),
            lambda: store.copy("existing", path),
            lambda: store.copy(path, "other"),
            lambda: list(store.files(path)) if path else store.info(path),
            lambda: list(store.folders(path)) if path else store.info(path),
        ):
            with pytest.raises(PathInvalid) as caught:
                operation()
            assert caught.value.backend == store.backend.name
        assert list(store.files()) == ["existing"]

    def test_a_path_of_1024_bytes_is_written_or_rejected(self, store: Store) -> None:
        path = "/".join(["x" * 63] * 16)
        path += "y" * (1024 - len(path))
        assert len(path) == 1024
        try:
            store.write(path, b"long")
        except PathInvalid:
            return  # The service has a lower limit.
        assert store.read_bytes(path) == b"long"
        assert list(store.files()) == [path]

    def test_two_unicode_forms_of_a_letter_are_never_mixed(self, store: Store) -> None:
        composed, decomposed = "caf\u00e9", "cafe\u0301"
        store.write(composed, b"composed")
        store.write(decomposed, b"decomposed")
        if sorted(store.files()) == sorted([composed, decomposed]):
            assert store.read_bytes(composed) == b"composed"
            assert store.read_bytes(decomposed) == b"decomposed"
        else:  # The service treats both as one file.
            assert len(list(store.files())) == 1
            assert store.read_bytes(composed) == store.read_bytes(decomposed) == b"decomposed"

    def test_a_name_of_1000_bytes_is_written_or_rejected(self, store: Store) -> None:
        try:
            store.write("x" * 1000, b"long")
        except PathInvalid:
            assert not list(store.files())
            return
        assert store.read_bytes("x" * 1000) == b"long"

    def test_a_store_with_a_root_sees_only_files_below_it(self, store: Store) -> None:
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
        assert sorted(store.files()) == [
            "inner/root/a/file",
            "inner/root/c/d",
            "inner/rooted",
            "outside",
        ]
        with pytest.raises(PathInvalid):
            inner.write("../rooted", b"x")
        with pytest.raises(PathInvalid):
            inner.write("/".join(["x" * 59] * 17), b"x")  # 1,019 bytes, without the root.


class StorageConformance(WritingTests, ListingTests, ConcurrencyTests, PathTests):
    """One behaviour on every backend. Subclass it and define the fixture `store`."""

    unsupported_names: tuple[str, ...] = ()
    """Names of `VALID_PATHS` that the service cannot hold. They must raise PathInvalid."""

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """Yield an empty store that only this test uses."""
        raise NotImplementedError("give the suite a fixture `store`")
