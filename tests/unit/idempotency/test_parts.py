"""The small parts: header, fingerprint, standing, keeper."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive import Key
from redrive.idempotency.fingerprint import Arguments, digest, fingerprint
from redrive.idempotency.header import BadHeader, key_in
from redrive.idempotency.keeper import Held, Keeper
from redrive.idempotency.record import Ident
from redrive.idempotency.response import Response, bounded, loaded
from redrive.idempotency.standing import Stored, come_back, standing


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'"8e03978e"', "8e03978e"), (b' "a b" ', "a b"), (rb'"a\"b\\c"', r'a"b\c'), (b'"a";v=1', "a"),
        (b"8e03978e-40d5", "8e03978e-40d5"), (b"a:b", "a:b"),
    ],
)  # fmt: skip
def test_a_header_with_a_key(value: bytes, key: str) -> None:
    assert key_in([value]) == key
    assert str(Ident.of(Key("http", "", key, "request")))


@pytest.mark.parametrize(
    "values", [[b""], [b'""'], [b'"a'], [b"a,b"], [b"a b"], [b'"a", "b"'], [b"a", b"b"], [b"x" * 256], [b"\xff"]]
)
def test_a_header_without(values: list[bytes]) -> None:
    with pytest.raises(BadHeader):
        key_in(values)


def test_no_header() -> None:
    assert key_in([]) is None


@dataclass
class Point:
    x: int


@given(st.dictionaries(st.sampled_from(["order", "user", "ä"]), st.text() | st.integers(), min_size=1))
@example({"user": 'a"\\\n\u2028\ud800', "order": ""})
def test_arguments_are_compared_as_json_however_they_are_written(given_: dict[str, Any]) -> None:
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in given_]
    arguments = Arguments(inspect.Signature(parameters))
    arguments.compare("f", {})
    assert arguments.digest(given_) == digest(given_)


@given(st.dictionaries(st.sampled_from(["order", "user", "ä"]), st.text(), min_size=1))
@example({"user": 'a"\\\n\u2028\ud800', "order": ""})
def test_arguments_that_are_all_texts(given_: dict[str, Any]) -> None:
    """A shorter way to the same digest; what is no text is refused there too."""
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in given_]
    arguments = Arguments(inspect.Signature(parameters))
    arguments.compare("f", dict.fromkeys(given_, str))
    assert arguments.digest(given_) == digest(given_)
    name = next(iter(given_))
    with pytest.raises(TypeError, match=f"argument '{name}': expected str, not int"):
        arguments.digest({**given_, name: 7})


def test_fingerprints() -> None:
    assert fingerprint(None) is None
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 1})
    assert fingerprint(b"a") == fingerprint(bytearray(b"a")) != fingerprint("a")
    assert fingerprint(Point(1)) == fingerprint({"x": 1})
    with pytest.raises(TypeError, match="cannot be stored"):
        fingerprint(object())


PARTS = st.text() | st.sampled_from(["", "a", ":", "%", "é", " "])


@example("a", "", "b", "", "v1")
@given(PARTS, PARTS, PARTS, PARTS, PARTS)
def test_a_text_is_read_as_the_key_it_is(domain: str, user: str, entity: str, operation: str, version: str) -> None:
    """The quick way and the long way say the same, also of what is no key."""
    text = f"{domain}:{user}:{entity}:{operation}:{version}"

    def outcome(read: Any) -> object:
        try:
            return read(text)
        except ValueError:
            return None

    quick, whole = outcome(Ident.read), outcome(Ident.of)
    assert quick == whole


HASH = b"1" * 32


@pytest.mark.parametrize(
    ("status", "leased", "over", "told"),
    [
        ("processing", True, False, "busy"),
        ("processing", True, True, "busy"),
        ("processing", False, False, None),
        ("processing", False, True, None),
        ("completed", True, False, "completed"),
        ("completed", False, False, "completed"),
        ("completed", True, True, None),
        ("failed", False, False, "failed"),
        ("failed", False, True, None),
    ],
)
def test_what_a_key_means(status: str, leased: bool, over: bool, told: str | None) -> None:
    stored = Stored(status, HASH, 1, b"1", '{"type":"X"}', leased, over)
    begun = standing(stored, HASH, 30.0)
    assert (begun and begun.outcome) == told
    other = standing(stored, b"2" * 32, 30.0)
    assert (other and other.outcome) == (None if over and told is None else "conflict")


def test_coming_back_doubles_within_bounds() -> None:
    now = datetime.now(timezone.utc)
    for taken, after in ((0.0, 1.0), (5.0, 5.0), (300.0, 30.0), (-100.0, 1.0)):
        begun = int((now - timedelta(seconds=taken)).timestamp() * 1_000_000)
        assert (come_back(begun, 30.0) - now).total_seconds() == pytest.approx(after, abs=0.5)


def test_a_response_that_is_too_large_is_stored_without_its_body() -> None:
    response = Response(201, [(b"A", b"1"), (b"Set-Cookie", b"s"), (b"connection", b"close")], b"\x00" * 100)
    assert loaded(response.stored()) == Response(201, [(b"A", b"1")], b"\x00" * 100)
    assert loaded(bounded(response, limit=100)) == Response(201, [(b"A", b"1")], None)
    assert loaded(bounded(response._replace(headers=[(b"A", b"1" * 5000)]), limit=100)) == Response(201, [], None)


class Database:
    """Renews what it is told to, or not."""

    def __init__(self) -> None:
        self.renewed: list[Held] = []
        self.lost: list[Held] = []
        self.swept = 0
        self.away = False

    def renew(self, held: Any) -> list[Held]:
        if self.away:
            raise ConnectionResetError
        self.renewed += held
        return self.lost

    def sweep(self) -> None:
        self.swept += 1


def until(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_keeper() -> None:
    database = Database()
    keeper = Keeper(database.renew, database.sweep, 0.06)
    held = (Ident("d", "u", "k"), 1)
    database.away = True
    keeper.hold(*held)
    thread = keeper._thread
    time.sleep(0.1)
    database.away = False
    until(lambda: len(database.renewed) >= 3)
    assert set(database.renewed) == {held}
    assert database.swept == 1
    database.lost = [held]
    until(lambda: not keeper._held)
    until(lambda: keeper._thread is None)  # with nothing in hand it ends
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    keeper.hold(*held)
    keeper.drop(*held)
    assert keeper._thread is not None
    keeper.close()
    assert keeper._thread is None or not keeper._thread.is_alive()
