"""Idempotency keys of requests: the caller's key, and keys derived from surrounding work."""

from __future__ import annotations

import pytest

from redrive import Key, retry
from redrive.http.headers import derive_key, key_header
from redrive.idempotency.request import key_in_header


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("k-1", "k-1"),
        (Key("billing", "ann", "o:1", "charge"), "billing:ann:o%3A1:charge:v1"),
        (Key("billing", "ünal", "o", "charge"), "billing:%C3%BCnal:o:charge:v1"),
        ('a b",;\\', "a%20b%22%2C%3B%5C"),
    ],
)
def test_a_key_is_sent_in_the_form_that_the_middleware_reads(given: Key | str, sent: str) -> None:
    assert key_header(given) == sent
    assert key_in_header([sent.encode("ascii")]) == sent, "our own middleware can read it"


def test_true_creates_a_new_key_each_time() -> None:
    assert key_header(True) != key_header(True)


def test_no_key_is_derived_without_a_surrounding_key() -> None:
    assert derive_key("POST", "/", b"", None) is None


@pytest.mark.parametrize(("method", "body"), [("GET", b""), ("PUT", b"x"), ("DELETE", b""), ("POST", None)])
def test_no_key_is_derived_for_idempotent_methods_and_streams(method: str, body: bytes | None) -> None:
    assert retry(key=Key("a", "b", "c", "d")).call(lambda: derive_key(method, "/", body, None)) is None


def test_different_requests_have_different_derived_keys() -> None:
    def keys() -> list[str | None]:
        return [
            derive_key("POST", "/a", b"1", None),
            derive_key("PATCH", "/a", b"1", None),
            derive_key("POST", "/b", b"1", None),
            derive_key("POST", "/a", b"2", None),
            derive_key("POST", "/a", b"1", "step"),
        ]

    work = retry(key=Key("a", "b", "c", "d"))
    found = work.call(keys)
    assert len(set(found)) == 5
    assert found == work.call(keys)
    assert not set(found) & set(retry(key=Key("a", "b", "c2", "d")).call(keys))
    assert found[4] is not None
    assert found[4].startswith("a:b:c:d.step.")
    assert all(Key.parse(key or "").entity == "c" for key in found)


def test_keys_are_derived_from_custom_and_long_keys() -> None:
    own = retry(key=lambda: "tour/7").call(lambda: derive_key("POST", "/", b"", None))
    assert own is not None
    assert own.startswith("tour/7.post.")
    long = retry(key=Key("a", "b", "c" * 300, "d")).call(lambda: derive_key("POST", "/", b"", None))
    assert long is not None
    assert len(long) == 64
