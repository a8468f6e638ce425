"""What an entry says, and what is said of one that cannot be read."""

from __future__ import annotations

import pytest

from redrive.messages.redis.entry import Entry, Fields, Unread, event_in, packed, unpacked


@pytest.mark.req("M-6")
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({b"type": b"paid", b"id": b"\xff"}, "its field 'id' is not valid UTF-8"),
        ({b"type": b"\xff"}, "its field 'type' is not valid UTF-8"),
        ({b"type": b"paid", b"payload": b"\xff", b"user": b"a\xff"}, "its field 'user' is not valid UTF-8"),
        ({b"type": b"paid", b"\xff": b"ann"}, r"its field '\\\\xff' is not valid UTF-8"),
        ({b"x": b"1"}, "it has no field 'type', only x"),
        ({b"type": b"paid", b"id": b""}, "id must be printable and not empty"),
    ],
)
def test_what_is_wrong_is_named(fields: Fields, says: str) -> None:
    with pytest.raises(Unread, match=says):
        event_in(Entry("1-0", fields), "shop", None, 100)


def test_fields_come_back_as_they_were() -> None:
    fields = {b"type": b"paid", b"\xff": b"\x00\xfe"}
    assert unpacked(packed(fields)) == fields


@pytest.mark.parametrize("payload", [b'{"x": 1}', b"[1]", b"no", b'[["a", {"base": "x"}]]', b"5"])
def test_fields_that_somebody_wrote_otherwise_are_refused_with_how_they_are_written(payload: bytes) -> None:
    with pytest.raises(ValueError, match="its fields must be written as"):
        unpacked(payload)
