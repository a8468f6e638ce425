"""JSON responses as types. Mismatches name the path and never the value."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from redrive.http.typed_json import JsonMismatch, json_reader
from tests.named import case_name

T = TypeVar("T")
Number = NewType("Number", int)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Page(Generic[T]):
    items: list[T]
    total: int


class Pair(NamedTuple):
    a: int
    b: str = ""


class Options(TypedDict):
    a: int
    b: NotRequired[str]


@attrs.define
class Crate:
    size: int
    _mark: str = "none"


class Struct(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("negative")


@pytest.mark.req("H-4")
@pytest.mark.parametrize(
    ("into", "data", "value"),
    [
        (int, 7, 7),
        (float, 7, 7.0),
        (str, "a", "a"),
        (type(None), None, None),
        (Any, {"a": [1]}, {"a": [1]}),
        (dict, {"a": 1}, {"a": 1}),
        (list, [1, "a"], [1, "a"]),
        (list[int], [1, 2], [1, 2]),
        (Sequence[int], [1], [1]),
        (set[int], [1, 1], {1}),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, Point], {"p": {"x": 1}}, {"p": Point(1)}),
        (Mapping[int, str], {"1": "a"}, {1: "a"}),
        (int | None, None, None),
        (int | str, "a", "a"),
        (list[Point | None], [{"x": 1}, None], [Point(1), None]),
        (Point | Pair, {"a": 1}, Pair(1)),
        (Annotated[int, "n"], 1, 1),
        (Number, 1, 1),
        (Literal["a", "b"], "b", "b"),
        (Colour, "red", Colour.RED),
        (datetime, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
        (date, "2026-01-02", date(2026, 1, 2)),
        (Decimal, "1.10", Decimal("1.10")),
        (Decimal, 0.1, Decimal("0.1")),
        (UUID, "12345678123456781234567812345678", UUID(int=0x12345678123456781234567812345678)),
        (Point, {"x": 1, "y": 2, "z": 3}, Point(1, 2)),
        (Tree, {"name": "a", "children": [{"name": "b"}]}, Tree("a", [Tree("b")])),
        (Page[Point], {"items": [{"x": 1}], "total": 1}, Page([Point(1)], 1)),
        (Pair, {"a": 1}, Pair(1)),
        (Options, {"a": 1, "c": 2}, {"a": 1}),
        (Crate, {"size": 1, "_mark": "x"}, Crate(1, "x")),
        (Struct, {"n": 1}, Struct(1)),
        (list[Struct], [{"n": 1}], [Struct(1)]),
        (Model, {"n": 1}, Model(n=1)),
        (dict[str, Model], {"a": {"n": 1}}, {"a": Model(n=1)}),
        (lambda data: data["n"], {"n": 1}, 1),
        (pydantic.TypeAdapter(list[Model]).validate_python, [{"n": 1}], [Model(n=1)]),
    ],
    ids=case_name,
)
def test_matching_json_becomes_the_type(into: Any, data: Any, value: Any) -> None:
    assert json_reader(into)(data) == value


@pytest.mark.req("H-4")
@pytest.mark.parametrize(
    ("into", "data", "message"),
    [
        (int, "7", "$: expected int, not a string"),
        (int, True, "$: expected int, not a boolean"),
        (str, 7, "$: expected str, not a number"),
        (list[int], {"a": 1}, "$: expected a list, not an object"),
        (list[int], [1, None], "$[1]: expected int, not null"),
        (tuple[int, str], [1], "$: expected a list of 2, not a list"),
        (dict[str, int], [], "$: expected an object, not a list"),
        (dict[str, int], {"a": "b"}, "$.*: expected int, not a string"),
        (dict[int, int], {"a": 1}, "$: a key does not have the expected type"),
        (Point, [], "$: expected an object for Point, not a list"),
        (Point, {"y": 1}, "$.x: missing"),
        (list[Point], [{"x": 1}, {"x": "1"}], "$[1].x: expected int, not a string"),
        (Tree, {"name": "a", "children": [{"name": "b", "children": [{}]}]}, "$.children[0].children[0].name: missing"),
        (Page[Point], {"items": [{"x": None}], "total": 1}, "$.items[0].x: expected int, not null"),
        (int | None, "a", "$: expected int, not a string"),
        (list[Point | None], [{"x": "1"}], "$[0].x: expected int, not a string"),
        (list[int | Point], [{"x": "1"}], "$[0]: $[0]: expected int, not an object; or $[0].x: expected int, not a string"),
        (int | Point, "a", "$: $: expected int, not a string; or $: expected an object for Point, not a string"),
        (Literal["a"], "b", "$: expected typing.Literal['a'], not a string"),
        (Colour, "blue", "$: expected Colour, not a string"),
        (datetime, "yesterday", "$: expected datetime, not a string"),
        (Options, {"b": "x"}, "$.a: missing"),
        (Crate, {}, "$.size: missing"),
        (Struct, {"n": "x"}, "$.n: Expected `int`, got `str`"),
        (list[Struct], [{}], "$[0]: Object missing required field `n`"),
        (Model, {}, "$.n: Field required"),
        (list[Model], [{"n": "secret"}], "$[0].n: Input should be a valid integer, unable to parse string as an integer"),
        (Positive, {"n": -1}, "$: Positive rejects the value (ValueError)"),
    ],
    ids=case_name,
)
def test_a_mismatch_names_the_path_and_the_expected_type(into: Any, data: Any, message: str) -> None:
    with pytest.raises(JsonMismatch, match=f"^{re.escape(message)}$"):
        json_reader(into)(data)


@pytest.mark.parametrize("into", [5, "Point", object(), complex, list[complex]])
def test_an_invalid_into_is_rejected(into: Any) -> None:
    with pytest.raises(TypeError, match="into= must be the type of the response, or a function"):
        json_reader(into)
