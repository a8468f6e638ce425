"""Writing: what was written is read, whatever form it came in, and nothing half-written stays."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from ...errors import AlreadyExists, RedriveError
from ...storage import Store
from .sample import BIG, Pipe, body


class Writing:
    """Written, read, replaced."""

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
                store_it("file", Pipe(data))
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

    @pytest.mark.parametrize("how", ["write", "write_atomic", "create"])
    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_a_source_that_fails_leaves_nothing(self, store: Store, how: str, after: int) -> None:
        if how != "create":
            store.write("file", b"old")

        def source() -> Iterator[bytes]:
            yield from (body(2_000_000, number) for number in range(after))
            raise OSError(28, "the source's own error")

        with pytest.raises(OSError, match="the source's own error") as caught:
            getattr(store, how)("file", source())
        assert not isinstance(caught.value, RedriveError)
        if how == "create" or (how == "write" and not store.exists("file")):  # what is replaced may be gone, and is never a half
            assert list(store.files()) == []
        else:
            assert list(store.files()) == ["file"]
            assert store.read_bytes("file") == b"old"
