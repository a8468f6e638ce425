"""Stored values keep the type of their annotation. Types that cannot be stored are rejected at definition."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from redrive.core.codec import codec, from_bytes, to_bytes
from tests.named import case_name

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    PAIR = (1, 2)


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    count: int = 1


@dataclass
class Order:
    id: UUID
    at: datetime
    lines: list[Line]
    notes: dict[str, str] = field(default_factory=dict)
    colour: Colour | None = None


@dataclass
class Tree:
    value: int
    children: list[Tree] = field(default_factory=list)


@dataclass
class Page(Generic[T]):
    items: list[T]


class Point(NamedTuple):
    x: int
    y: float


class Options(TypedDict):
    name: str
    size: NotRequired[int]


class Model(pydantic.BaseModel):
    at: date
    price: Decimal


@attrs.frozen
class Attrs:
    day: date
    _hidden: int = 3


class Struct(msgspec.Struct):
    id: UUID
    n: int = 1


AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc)
ID = UUID("12345678123456781234567812345678")
VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (bool, True),
    (int, 10**30),
    (float, 1.5),
    (str, "žluť ✓"),
    (bytes, b"\x00\xff"),
    (datetime, AT),
    (date, date(2026, 2, 28)),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(days=1, milliseconds=1)),
    (Decimal, Decimal("0.10")),
    (UUID, ID),
    (Path, Path("a/b")),
    (Colour, Colour.BLUE),
    (Level, Level.HIGH),
    (Odd, Odd.PAIR),
    (list[int], [1, 2]),
    (Sequence[str], ["a"]),
    (tuple[int, str], (1, "a")),
    (tuple[date, ...], (date(2026, 1, 1),)),
    (set[str], {"a", "b"}),
    (frozenset[int], frozenset({1})),
    (dict[str, list[int]], {"a": [1]}),
    (dict[int, str], {1: "a"}),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[Level, int], {Level.LOW: 1}),
    (dict[date, int], {date(2026, 1, 1): 1}),
    (Mapping[UUID, int], {ID: 1}),
    (int | None, None),
    (Optional[date], date(2026, 1, 1)),  # noqa: UP045  # the old syntax is another type at run time
    (int | str, "1"),
    (int | str, 1),
    (date | str | None, date(2026, 1, 1)),
    (date | str | None, "2026-01-01"),
    (date | str | None, None),
    (Literal["a", 1, None], "a"),
    (Annotated[int, "years"], 7),
    (UserId, 7),
    (Any, {"a": [1, None, True, "x", 1.5]}),
    (object, [1]),
    (list, [1, "a"]),
    (dict, {"a": 1}),
    (Line, Line("x", Decimal("1.20"))),
    (Order, Order(ID, AT, [Line("x", Decimal(1))], {"k": "v"}, Colour.RED)),
    (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])])),
    (Page[Line], Page([Line("x", Decimal(2))])),
    (Point, Point(1, 2.5)),
    (Options, {"name": "a"}),
    (Options, {"name": "a", "size": 1}),
    (Model, Model(at=date(2026, 1, 1), price=Decimal("1.5"))),
    (list[Model], [Model(at=date(2026, 1, 1), price=Decimal("1.5"))]),
    (Attrs, Attrs(date(2026, 1, 1), 4)),
    (Struct, Struct(ID, 2)),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=case_name)
def test_a_value_survives_the_round_trip(annotation: Any, value: Any) -> None:
    how = codec(annotation)
    back = how.load(from_bytes(to_bytes(how.dump(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, "1"),
        (int, True),
        (bool, 1),
        (str, 1),
        (float, "1.5"),
        (date, "2026-01-01"),
        (Colour, "red"),
        (list[int], "12"),
        (list[int], ["1"]),
        (tuple[int, int], (1,)),
        (dict[str, int], {1: 1}),
        (dict[str, int], [("a", 1)]),
        (Literal["a"], "b"),
        (Line, {"sku": "x"}),
        (int | str, 1.5),
        (Options, {"size": 1}),
        (Options, {"name": "a", "colour": 1}),
        (Model, {"at": "2026-01-01"}),
        (Struct, {"n": 1}),
        (Any, object()),
        (Any, {1: 2}),
    ],
    ids=case_name,
)
def test_a_value_of_another_type_is_rejected(annotation: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=r"expected|cannot be stored"):
        codec(annotation).dump(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ("a\ud800", "it"),
        ({"note": "s3cret\udcff"}, "note"),
        ({"to": [{"name": "a"}, {"name": "\ud800"}]}, r"to\[1\].name"),
        ([["\ud800"]], r"\[0\]\[0\]"),
        ({"\ud800": 1}, "a name"),
    ],
    ids=ascii,
)
def test_a_lone_surrogate_is_rejected_with_its_path(value: Any, where: str) -> None:
    with pytest.raises(ValueError, match=f"^{where} has half a surrogate pair, '.*', which cannot be stored$") as caught:
        to_bytes(value)
    assert not isinstance(caught.value, UnicodeError)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("annotation", [float, Any])
def test_a_number_that_json_lacks_is_rejected(annotation: Any, number: float) -> None:
    with pytest.raises(ValueError, match="JSON has no such number"):
        codec(annotation).dump(number)


class Plain:
    pass


@dataclass
class Holder:
    inner: list[Plain]


@pytest.mark.parametrize(
    "annotation", [Plain, list[Plain], type, dict[bytes, int], Literal[1.5], complex, int | Plain], ids=case_name
)
def test_a_type_that_cannot_be_stored_is_rejected_at_definition(annotation: Any) -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        codec(annotation)


def test_the_error_names_the_field() -> None:
    with pytest.raises(TypeError, match=r"Holder\.inner: .*Plain cannot be stored"):
        codec(Holder)


def test_an_added_field_gets_its_default() -> None:
    assert codec(Line).load({"sku": "x", "price": "1"}) == Line("x", Decimal(1), 1)


def test_a_removed_field_is_ignored() -> None:
    assert codec(Point).load({"x": 1, "y": 2.0, "z": 3}) == Point(1, 2.0)


@pytest.mark.parametrize(
    ("annotation", "stored", "message"),
    [
        (dict[str, int], [1], "expected an object, not list"),
        (dict[str, Any], [["a", 1]], "expected an object, not list"),
        (Point, "x", "expected an object, not str"),
        (list[str], "abc", "expected a list, not str"),
        (set[int], {"a": 1}, "expected a list, not dict"),
        (tuple[int, int], [1], "expected a list of 2, not list"),
        (UUID, 5, "expected UUID, not int"),
    ],
)
def test_a_stored_value_that_does_not_match_is_a_type_error(annotation: Any, stored: Any, message: str) -> None:
    """Other code wrote it. The reader learns from this error that it can never be read."""
    with pytest.raises(TypeError, match=message):
        codec(annotation).load(stored)


@pytest.mark.parametrize("stored", [b"NaN", b"Infinity", b'{"a": -Infinity}', b"[1e999]", '{"a": NaN}', "[-1e400]"])
def test_numbers_that_json_does_not_have_are_rejected_on_decode(stored: bytes | str) -> None:
    with pytest.raises(ValueError, match="number"):
        from_bytes(stored)


@pytest.mark.parametrize(
    ("annotation", "stored"),
    [
        (int | str, {"$type": -1, "value": "x"}),
        (int | str, {"$type": 2, "value": "x"}),
        (int | str, {"$type": True, "value": "x"}),
        (int | str, {"$type": 0.0, "value": 1}),
        (int | str, {"$type": 0, "value": 1, "more": 1}),
        (int | str, [1]),
        (bytes, "QQ"),
        (bytes, "Q!Q=="),
        (bytes, "QR=="),
        (bytes, "QQ==\n"),
        (bytes, "_-8="),
        (dict[float, int], {"nan": 1}),
        (dict[float, int], {"inf": 1}),
        (dict[int, int], {"1_000": 1}),
        (dict[int, int], {" 1": 1}),
    ],
)
def test_lax_forms_are_rejected_on_decode(annotation: Any, stored: Any) -> None:
    with pytest.raises(TypeError):
        codec(annotation).load(stored)


def test_keys_that_are_not_numbers_are_rejected_on_encode() -> None:
    with pytest.raises(TypeError, match="JSON has no such number"):
        codec(dict[float, int]).dump({float("nan"): 1})
    assert codec(dict[float, int]).load(codec(dict[float, int]).dump({1.5: 1, 1e300: 2})) == {1.5: 1, 1e300: 2}
