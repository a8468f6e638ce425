"""The key in the Idempotency-Key header."""

from __future__ import annotations

import pytest

from redrive import Key
from redrive.idempotency.record import KeyId
from redrive.idempotency.request import BadHeader, key_in_header


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'"8e03978e"', "8e03978e"),
        (b' "a b" ', "a b"),
        (rb'"a\"b\\c"', r'a"b\c'),
        (b'"a";v=1', "a"),
        (b"8e03978e-40d5", "8e03978e-40d5"),
        (b"a:b", "a:b"),
    ],
)
def test_a_valid_header(value: bytes, key: str) -> None:
    assert key_in_header([value]) == key
    assert str(KeyId.of(Key("http", "", key, "request")))


@pytest.mark.parametrize(
    "values", [[b""], [b'""'], [b'"a'], [b"a,b"], [b"a b"], [b'"a", "b"'], [b"a", b"b"], [b"x" * 256], [b"\xff"]]
)
def test_an_invalid_header(values: list[bytes]) -> None:
    with pytest.raises(BadHeader):
        key_in_header(values)


def test_a_missing_header() -> None:
    assert key_in_header([]) is None
