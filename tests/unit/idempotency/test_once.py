"""`once` rejects invalid functions and options when it decorates, and opens nothing."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Key
from redrive.errors import KeyConflict


class Opaque:
    """A type that cannot be stored."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    file = tmp_path / "ledger.db"
    with App(f"sqlite:///{file}") as opened:
        yield opened
        assert not file.exists()


def plain(user: str, n: int) -> int:
    return n


def untyped(user: Any, n: Any) -> Any:
    return n


@pytest.mark.req("I-1")
@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("billing:{user}:{n}:v1", "at least 5 parts"),
        ("billing:{usr}:{n}:charge:v1", "names 'usr', but plain has user, n"),
        ("billing:{user!r}:{n}:charge:v1", "write {name} or {name.attribute}"),
        (":{user}:{n}:charge:v1", "'domain' is empty"),
        (5, "a key template, or a function"),
        (Key("a", "b", "c", "d"), "a key template, or a function"),
    ],
)
def test_an_invalid_key_template_is_rejected(app: App, key: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        app.once(key)(plain)


def test_types_without_a_codec_are_rejected(app: App) -> None:
    def answer(user: str) -> Opaque: ...  # type: ignore[empty-body]
    def argument(user: str, thing: Opaque) -> int: ...  # type: ignore[empty-body]
    def unknown(user: Missing) -> int: ...  # type: ignore[name-defined,empty-body]  # noqa: F821

    template = "a:{user}:b:c:v1"
    with pytest.raises(TypeError, match="answer: its result cannot be stored: Opaque cannot be stored"):
        app.once(template)(answer)
    with pytest.raises(TypeError, match="argument 'thing' cannot be compared.*or pass request= to choose what is compared"):
        app.once(template)(argument)
    app.once(template, request=lambda user, thing: user)(argument)
    with pytest.raises(TypeError, match="annotations cannot be read: name 'Missing' is not defined"):
        app.once(template)(unknown)


def test_sync_and_async_functions(app: App) -> None:
    async def later(tx: Any, user: str) -> int: ...  # type: ignore[empty-body]
    def many(user: str) -> Iterator[int]:
        yield 1

    async def amany(user: str) -> AsyncIterator[int]:
        yield 1

    def nobody() -> int: ...  # type: ignore[empty-body]
    def by_name(*, tx: Any) -> int: ...  # type: ignore[empty-body]

    template = "a:{user}:b:c:v1"
    with pytest.raises(TypeError, match="later is async"):
        app.once(template, in_transaction=True)(later)
    for generator in (many, amany):
        with pytest.raises(TypeError, match="is a generator|cannot be stored"):
            app.once(template)(generator)
    without: Any
    for without in (nobody, by_name):
        with pytest.raises(TypeError, match="its first parameter is the connection"):
            app.once("a:u:b:c:v1", in_transaction=True)(without)


def test_invalid_options_are_rejected(app: App) -> None:
    options: list[tuple[dict[str, Any], str]] = [
        ({"keep": 0}, "keep must be above 0"),
        ({"keep": 1e12}, "keep must be less than a century"),
        ({"wait": -1}, "wait must not be negative"),
        ({"wait": "1"}, "wait must be seconds or a timedelta"),
        ({"request": 5}, "request= must be a function"),
        ({"free_on": 5}, "free_on= takes exception types"),
    ]
    for given, error in options:
        with pytest.raises((TypeError, ValueError), match=error):
            app.once("a:{user}:{n}:c:v1", **given)(plain)
    with pytest.raises(TypeError):
        app.once("a:{user}:{n}:c:v1", kep=5)  # type: ignore[call-overload]


def test_the_wrapper_keeps_name_and_signature(app: App) -> None:
    @app.once("a:{user}:b:c:v1", in_transaction=True)
    def work(tx: Any, user: str) -> int:
        """Do it."""
        return 1

    assert (work.__name__, work.__doc__) == ("work", "Do it.")
    assert list(inspect.signature(work).parameters) == ["user"]
    assert inspect.iscoroutinefunction(app.once("a:u:b:c:v1")(_later))


async def _later() -> int:
    return 1


def test_a_call_with_wrong_arguments_is_rejected() -> None:
    with App("sqlite://") as app:
        once = app.once("a:{user}:{n}:c:v1")(plain)
        for wrong in (("a",), ("a", 1, 2), ("a", "1")):
            with pytest.raises(TypeError):
                once(*wrong)
        assert once("a", 1) == once(n=1, user="a") == 1
        with pytest.raises(ValueError, match="'entity' is empty"):
            app.once("a:{user}:{n}:d:v1")(untyped)("a", "")


def test_values_in_the_key_are_escaped() -> None:
    with App("sqlite://") as app:
        once = app.once("a:{user}:{n}:c:v1")(plain)
        assert once("x:y%", 1) == 1
        assert [record.user_id for record in app.keys().page()] == ["x:y%"]
        assert app.keys().page()[0].key == "a:x%3Ay%25:1:c:v1"
        with pytest.raises(KeyConflict), app.claim(Key("a", "x:y%", "1", "c"), request="other"):
            pass
