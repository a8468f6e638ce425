"""Tests of writing and reading, and of concurrent writers and readers."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...errors import AlreadyExists, RedriveError, StorageError
from ...storage import FileInfo, Store
from .samples import LARGE_BYTES, UnseekableFile, sample_bytes


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
