"""Tags of commands: which arguments they name, and the text that is stored."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from redrive.app import App
from redrive.commands.arguments import TagReader


class Size(enum.Enum):
    SMALL = "s"


@dataclass
class Order:
    id: int
    note: str | None = None


def sync(order_id: str, order: Order | None = None, *, page: int = 1) -> None: ...


def read(value: object) -> dict[str, str] | None:
    def take(value: Any) -> None: ...

    return TagReader("take", take, ("value",), skip=0).read((value,), {})


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("o-17", "o-17"),
        (17, "17"),
        (1.5, "1.5"),
        (True, "true"),
        (Decimal("2.50"), "2.50"),
        (Size.SMALL, "s"),
        (date(2026, 1, 31), "2026-01-31"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_a_simple_value_is_stored_as_text(value: object, text: str) -> None:
    assert read(value) == {"value": text}


def test_a_missing_value_is_not_a_tag() -> None:
    assert read(None) is None


def test_an_object_is_rejected_with_the_fix() -> None:
    with pytest.raises(TypeError, match=r"take: the tag 'value' is a Order; name an attribute .* such as 'order\.id'"):
        read(Order(1))


@pytest.mark.req("Q-1")
def test_tags_are_read_from_arguments_attributes_and_defaults() -> None:
    reader = TagReader("sync", sync, ("order_id", "order.id", "order.note", "page"), skip=0)
    assert reader.read(("o-1", Order(7)), {}) == {"order_id": "o-1", "order.id": "7", "page": "1"}
    assert reader.read((), {"order_id": "o-2", "page": 3}) == {"order_id": "o-2", "page": "3"}
    assert TagReader("sync", sync, (), skip=0).read(("o-1",), {}) is None


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("nope",), r"tags= names 'nope', but .*sync has order_id, order, page"),
        (5, r"tags= must be names of parameters, such as \('order_id',\), not 5"),
        (None, r"tags= must be names of parameters, such as \('order_id',\), not None"),
        ("order_id", r"tags= must be names of parameters, such as \('order_id',\)"),
        (("a b",), r"invalid name 'a b'"),
        (tuple(f"t{number}" for number in range(21)), "use at most 20"),
    ],
)
def test_a_name_that_cannot_be_a_tag_is_rejected(names: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        TagReader("sync", sync, names, skip=0)


@pytest.mark.req("Q-1")
def test_a_secret_or_a_search_word_is_rejected() -> None:
    def login(password: str, state: str) -> None: ...

    with pytest.raises(ValueError, match="'password', which is a secret"):
        TagReader("login", login, ("password",), skip=0)
    with pytest.raises(ValueError, match="'state', which is a word of every search"):
        TagReader("login", login, ("state",), skip=0)


@pytest.mark.req("Q-1")
def test_a_command_submits_its_tags() -> None:
    app = App("sqlite://")

    @app.command("crm.sync", tags=("order_id",))
    def sync(order_id: int) -> None: ...

    assert sync.bind(17).job.tags == {"order_id": "17"}
    with pytest.raises(ValueError, match="tags= names 'nope'"):

        @app.command("crm.other", tags=("nope",))
        def other(order_id: int) -> None: ...
