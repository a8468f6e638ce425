"""Decoding of messages, and the reasons for unreadable ones."""

from __future__ import annotations

import pytest

from redrive.messages import RedisStream
from redrive.messages.decoding import (
    Fields,
    UnreadableMessage,
    decode_message,
    dump_message,
    load_message,
    message_of_fields,
)

SHOP = RedisStream("redis://localhost", "shop", group="shop")


@pytest.mark.req("M-6")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({b"type": b"paid", b"id": b"\xff"}, "its field 'id' is not valid UTF-8"),
        ({b"type": b"\xff"}, "its field 'type' is not valid UTF-8"),
        ({b"type": b"paid", b"payload": b"\xff", b"user": b"a\xff"}, "its field 'user' is not valid UTF-8"),
        ({b"type": b"paid", b"\xff": b"ann"}, r"its field '\\\\xff' is not valid UTF-8"),
        ({b"x": b"1"}, "it has no field 'type', only x"),
        ({b"type": b"paid", b"id": b""}, "id must be printable and not empty"),
    ],
)
def test_the_invalid_field_is_named(fields: Fields, message: str) -> None:
    with pytest.raises(UnreadableMessage, match=message):
        decode_message(message_of_fields("1-0", fields), SHOP, 100)


def test_dumped_fields_are_loaded_unchanged() -> None:
    fields = {b"type": b"paid", b"\xff": b"\x00\xfe"}
    message = message_of_fields("1-0", fields)
    assert load_message("1-0", dump_message(message)) == message


@pytest.mark.parametrize("payload", [b'{"x": 1}', b"[1]", b"no", b'[["a", {"base": "x"}]]', b"5"])
def test_edited_fields_of_another_form_are_rejected(payload: bytes) -> None:
    with pytest.raises(ValueError, match="its fields must be written as"):
        load_message("1-0", payload)
