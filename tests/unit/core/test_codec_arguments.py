"""The arguments of a function: stored by their annotations, and loaded for the call."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from redrive.core.codec.codec import Arguments


@dataclass
class Order:
    id: int
    total: Decimal


def everything(first: Order, /, day: date, *rest: int, user: str = "nobody", **more: Decimal) -> tuple[Any, ...]:
    return first, day, rest, user, more


ORDER = Order(1, Decimal("9.50"))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((ORDER, date(2026, 1, 31)), {}),
        ((ORDER,), {"day": date(2026, 1, 31)}),
        ((ORDER, date(2026, 1, 31), 3, 4), {"user": "ann", "tax": Decimal("1.2"), "tip": Decimal(2)}),
    ],
)
def test_loaded_arguments_call_the_function_as_before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import json

    arguments = Arguments(everything)
    stored = json.loads(json.dumps(arguments.dump(args, kwargs)))
    again, by_name = arguments.load(stored)
    assert everything(*again, **by_name) == everything(*args, **kwargs)


def test_defaulted_arguments_are_omitted() -> None:
    assert Arguments(everything).dump((ORDER, date(2026, 1, 31)), {}) == {
        "first": {"id": 1, "total": "9.50"},
        "day": "2026-01-31",
    }


class Service:
    def sync(self, contact: int) -> None: ...


def bare(contact, user: str) -> None: ...  # type: ignore[no-untyped-def]


def unstorable(contact: int, connection: object | Service) -> None: ...


def unknown(contact: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (Service.sync, "self cannot be stored"),
        (bare, "the parameter 'contact' has no annotation"),
        (unstorable, "the parameter 'connection': .* cannot be stored"),
        (unknown, "annotations cannot be read: name 'Missing' is not defined"),
    ],
)
def test_arguments_that_cannot_be_stored_are_rejected_at_decoration(fn: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Arguments(fn)


def plain(contact: int, user: str = "nobody") -> None: ...


def test_a_call_that_does_not_match_is_rejected() -> None:
    arguments = Arguments(plain)
    with pytest.raises(TypeError, match="the argument 'contact'"):
        arguments.dump(("seven",), {})
    with pytest.raises(TypeError, match=r": missing a required argument: .*; it takes \("):
        arguments.dump((), {})
    with pytest.raises(TypeError, match="plain has no parameter colour"):
        arguments.load({"contact": 1, "colour": "red"})
    with pytest.raises(TypeError, match="plain needs 'contact'"):
        arguments.load({"user": "ann"})
    assert arguments.load({"contact": 7}) == ((7,), {})


def test_every_stored_argument_that_does_not_match_is_named() -> None:
    with pytest.raises(TypeError) as raised:
        Arguments(plain).load({"contact": "seven", "user": 3, "colour": "red"})
    assert str(raised.value) == (
        "plain has no parameter colour, but the stored call does; "
        "expected int, not str (at contact); expected str, not int (at user)"
    )


def anything(value: Any) -> None: ...


def test_values_that_json_cannot_represent_are_rejected_with_the_fix() -> None:
    arguments = Arguments(anything)
    with pytest.raises(TypeError, match="^anything: the argument 'value': object cannot be stored as JSON; use text, "):
        arguments.dump((object(),), {})
    with pytest.raises(TypeError, match="a dict cannot be stored as JSON: the key 1 is not text"):
        arguments.dump(({1: "a"},), {})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="^anything: the argument 'value': nested too deeply, or contains itself"):
        arguments.dump((endless,), {})
