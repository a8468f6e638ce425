"""Body: read once, in pieces of the requested size, from every type of source."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.storage.body import Body


@given(st.lists(st.binary(max_size=20)), st.integers(1, 50))
def test_pieces_have_the_requested_size(parts: list[bytes], size: int) -> None:
    moved: list[int] = []
    body = Body(iter(parts), moved.append)
    pieces = list(body.pieces(size))
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert sum(moved) == body.moved == len(b"".join(parts))
    assert body.read(10) == b""


def test_a_large_piece_is_not_copied_repeatedly() -> None:
    """A gigabyte in one piece would otherwise be copied five hundred times."""
    large = bytes(range(256)) * 40_000
    body = Body([large, b"end"])
    tracemalloc.start()
    try:
        first = body.read(1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3_000_000
    assert first + body.read() == large + b"end"


@given(st.binary(max_size=200), st.integers(0, 200))
def test_the_size_counts_from_the_current_position(data: bytes, start: int) -> None:
    file = io.BytesIO(data)
    file.seek(start)
    body = Body(file)
    assert body.size == max(0, len(data) - start)
    assert body.read() == data[start:]


def test_the_size_of_every_type_of_data() -> None:
    assert Body(b"abc").size == 3
    assert Body(bytearray(4)).size == 4
    assert Body(memoryview(b"abcdefgh").cast("I")).size == 8
    assert Body(memoryview(b"abcdefgh").cast("I")).read() == b"abcdefgh"
    assert Body(iter([b"a"])).size is None


def test_the_error_of_the_source_is_kept() -> None:
    def source() -> Iterator[bytes]:
        yield b"x"
        raise KeyError("mine")

    body = Body(source())
    assert body.read(1) == b"x"
    with pytest.raises(KeyError) as caught:
        body.read(1)
    assert body.failure is caught.value


def test_the_error_of_progress_is_kept() -> None:
    def stop(_count: int) -> None:
        raise InterruptedError("enough")

    body = Body(b"x" * 10, stop)
    with pytest.raises(InterruptedError) as caught:
        body.read(5)
    assert body.failure is caught.value


@pytest.mark.parametrize("wrong", ["text", 5, None, object()])
def test_other_types_are_rejected(wrong: object) -> None:
    with pytest.raises(TypeError, match="bytes"):
        Body(wrong)  # type: ignore[arg-type]
