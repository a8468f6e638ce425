"""Key: the identity of work, as text and parsed, and templates over a function's parameters."""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from redrive import Key
from redrive.core.key import SHAPE, Template

EXAMPLES = {  # from document 002
    "workflow:user_123:run_456:module:resume:v1": Key("workflow", "user_123", "run_456", "module:resume", "v1"),
    "mission:user_123:instance_456:start:v1": Key("mission", "user_123", "instance_456", "start", "v1"),
    "service:user_123:interview:configure:session_abc": Key("service", "user_123", "interview", "configure", "session_abc"),
    "event:user_123:growEventId:project:qscore:v1": Key("event", "user_123", "growEventId", "project:qscore", "v1"),
    "opencode:user_123:run_456:interview-plan:prompt-v4": Key("opencode", "user_123", "run_456", "interview-plan", "prompt-v4"),
}
PARTS = ("domain", "user", "entity", "operation", "version")


@dataclass
class Order:
    id: str
    user: str | None = "ann"


class Nameless:
    pass


class Colour(StrEnum):
    RED = "red"


@pytest.mark.req("I-1")
@pytest.mark.parametrize("text", EXAMPLES)
def test_documented_keys_round_trip(text: str) -> None:
    assert Key.parse(text) == EXAMPLES[text]
    assert str(EXAMPLES[text]) == text
    assert str(Key.parse(text)) == text


@pytest.mark.req("I-1")
def test_a_key_is_an_immutable_value() -> None:
    key = Key("shop", "ann", "o-1", "receipt")
    assert key.version == "v1"
    assert {key: 1}[Key.parse("shop:ann:o-1:receipt:v1")] == 1
    assert pickle.loads(pickle.dumps(key)) == key
    assert not hasattr(key, "__dict__")
    assert SHAPE == "<domain>:<user>:<entity>:<operation>:<version>"
    with pytest.raises(FrozenInstanceError):
        key.user = "bob"  # type: ignore[misc]


@pytest.mark.req("I-1")
@pytest.mark.parametrize(
    ("part", "escaped"),
    [("a:b", "a%3Ab"), (":", "%3A"), ("100%", "100%25"), ("%3A", "%253A"), ("%25:", "%2525%3A"), ("a b/ü", "a b/ü")],
)
def test_colons_and_percents_are_escaped_in_every_part_but_the_operation(part: str, escaped: str) -> None:
    key = Key(part, part, part, "do", part)
    assert str(key) == f"{escaped}:{escaped}:{escaped}:do:{escaped}"
    assert Key.parse(str(key)) == key


@pytest.mark.req("I-1")
def test_pieces_of_an_operation_are_kept_unchanged() -> None:
    key = Key("d", "u", "e", "a:b%3A:c", "v")
    assert str(key) == "d:u:e:a:b%3A:c:v"
    assert Key.parse(str(key)) == key


@pytest.mark.req("I-1")
def test_different_keys_never_have_the_same_text() -> None:
    assert str(Key("a", "b:c", "d", "e")) != str(Key("a:b", "c", "d", "e"))
    assert str(Key("a", "b", "c:d", "e")) != str(Key("a", "b", "c", "d:e"))


@pytest.mark.req("I-1")
@pytest.mark.parametrize("name", PARTS)
def test_every_part_must_be_text(name: str) -> None:
    for wrong in (None, 5, b"x", ["x"]):
        said = f"key part {name!r} must be text, not {type(wrong).__name__}: {wrong!r}"
        with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
            Key(**{**dict.fromkeys(PARTS, "x"), name: wrong})  # type: ignore[arg-type]


@pytest.mark.req("I-1")
@pytest.mark.parametrize("name", PARTS)
def test_every_part_must_be_printable(name: str) -> None:
    for wrong in ("a\nb", "a\x00", "\ud800", "\u202e", "\t"):
        said = f"key part {name!r} has a character that cannot be printed: {wrong!r}"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            Key(**{**dict.fromkeys(PARTS, "x"), name: wrong})


@pytest.mark.req("I-1")
@pytest.mark.parametrize("name", PARTS)
def test_only_the_user_may_be_empty(name: str) -> None:
    parts = {**dict.fromkeys(PARTS, "x"), name: ""}
    if name == "user":
        assert str(Key(**parts)) == "x::x:x:x"
        assert Key.parse("x::x:x:x") == Key(**parts)
    else:
        with pytest.raises(ValueError, match=f"^key part {name!r} is empty; only 'user' may be empty$"):
            Key(**parts)


@pytest.mark.req("I-1")
@pytest.mark.parametrize("operation", [":", "a:", ":a", "a::b"])
def test_an_operation_has_no_empty_piece(operation: str) -> None:
    with pytest.raises(ValueError, match=f"^key part 'operation' has an empty piece: {operation!r}$"):
        Key("d", "u", "e", operation)
    with pytest.raises(ValueError, match="empty"):
        Key.parse(f"d:u:e:{operation}:v1")


@pytest.mark.req("I-1")
@pytest.mark.parametrize(("text", "parts"), [("", 1), ("a", 1), ("a:b:c:d", 4)])
def test_text_with_too_few_parts_is_rejected(text: str, parts: int) -> None:
    said = f"a key has at least 5 parts, {SHAPE}; {text!r} has {parts}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Key.parse(text)


@pytest.mark.req("I-1")
@pytest.mark.parametrize("text", [None, 5, b"a:b:c:d:e", Key("a", "b", "c", "d")])
def test_only_text_is_parsed(text: Any) -> None:
    said = f"a key must be text of the form {SHAPE}, not {type(text).__name__}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        Key.parse(text)


def test_a_step_extends_the_operation() -> None:
    key = Key("workflow", "ann", "run", "module:resume", "v2")
    assert str(key.step("mail")) == "workflow:ann:run:module:resume.mail:v2"
    assert key.step("mail") == replace(key, operation="module:resume.mail")
    with pytest.raises(ValueError, match="^key part 'operation' is empty"):
        key.step("")
    with pytest.raises(TypeError, match="^key part 'operation' must be text, not int: 5$"):
        key.step(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty piece"):
        key.step("a:")


def ship(order: Order, user: str, *, day: str = "mon", extra: object = None) -> None: ...


def fill(template: str, *args: object, **kwargs: object) -> str:
    return str(Template.over(template, ship).key(args, kwargs))


@pytest.mark.req("I-1")
def test_a_template_takes_arguments_attributes_and_defaults() -> None:
    template = "shop:{user}:{order.id}:ship:{day}"
    assert fill(template, Order("o-1"), "ann") == "shop:ann:o-1:ship:mon"
    assert fill(template, user="ann", order=Order("o-1"), day="tue") == "shop:ann:o-1:ship:tue"
    assert fill("shop:{order.user}:{order.id.__class__.__name__}-{day}:ship:v1", Order("o"), "u") == "shop:ann:str-mon:ship:v1"
    assert fill("shop::all:{{nightly}}:v1", Order("o"), "u") == "shop::all:{nightly}:v1"


@pytest.mark.req("I-1")
def test_a_template_keeps_its_text() -> None:
    assert Template.over("shop:{user}:all:ship:v1", ship).text == "shop:{user}:all:ship:v1"


@pytest.mark.req("I-1")
def test_arguments_are_escaped_and_cannot_pose_as_another_part() -> None:
    template = "shop:{user}:{order.id}:ship:v1"
    assert fill(template, Order("b"), "ann:x") == "shop:ann%3Ax:b:ship:v1"
    assert fill(template, Order("x:b"), "ann") != fill(template, Order("b"), "ann:x")
    assert Template.over(template, ship).key((Order("50%"), "a:b"), {}) == Key("shop", "a:b", "50%", "ship")
    assert fill("shop:{user}:e:{day}:v1", Order("b"), "u", day="a:b") == "shop:u:e:a%3Ab:v1"


@pytest.mark.req("I-1")
def test_numbers_and_enums_become_their_text() -> None:
    assert fill("shop:{user}:{order}:{day}:v1", 7, "ann", day=Colour.RED) == "shop:ann:7:red:v1"


@pytest.mark.req("I-1")
def test_none_in_a_template_is_rejected() -> None:
    said = "key template 'shop:{order.user}:e:o:v1': {order.user} is None, so different work would share one key; pass a value"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        fill("shop:{order.user}:e:o:v1", Order("o-1", None), "ann")


def test_a_missing_attribute_is_named() -> None:
    said = "key template 'shop:{order.user}:e:o:v1': {order.user} cannot be read from str"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        fill("shop:{order.user}:e:o:v1", "o-1", "ann")


@pytest.mark.req("I-1")
def test_an_object_without_stable_text_is_rejected() -> None:
    with pytest.raises(
        TypeError,
        match=r"^key template .*:v1': \{extra\} is a Nameless, which has no stable text",
    ):
        fill("shop:{user}:{extra}:o:v1", Order("o"), "ann", extra=Nameless())


@pytest.mark.req("I-1")
def test_a_value_that_makes_a_part_empty_or_unprintable_is_rejected() -> None:
    assert fill("shop:{user}:e:o:v1", Order("o"), "") == "shop::e:o:v1"
    with pytest.raises(ValueError, match="^key part 'entity' is empty"):
        fill("shop:{user}:{order.id}:o:v1", Order(""), "ann")
    with pytest.raises(ValueError, match="cannot be printed"):
        fill("shop:{user}:{order.id}:o:v1", Order("a\nb"), "ann")


@pytest.mark.req("I-1")
def test_arguments_that_do_not_match_the_function_raise_its_type_error() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'user'"):
        fill("shop:{user}:e:o:v1", Order("o"))


@pytest.mark.req("I-1")
def test_leading_parameters_can_be_skipped() -> None:
    def project(tx: object, event: str) -> None: ...

    template = Template.over("event:{event}:e:o:v1", project, skip=1)
    assert template.key(("e-1",), {}) == Key("event", "e-1", "e", "o")
    with pytest.raises(ValueError, match="names 'tx', but .*project has event$"):
        Template.over("event:{tx}:e:o:v1", project, skip=1)


@pytest.mark.req("I-1")
def test_an_unknown_name_is_rejected_at_decoration_with_the_known_ones() -> None:
    said = "key template 'shop:{usr}:e:o:v1' names 'usr', but ship has order, user, day, extra"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Template.over("shop:{usr}:e:o:v1", ship)


@pytest.mark.req("I-1")
@pytest.mark.parametrize("fn", [lambda: None, functools.partial(lambda a: None, 1)])
def test_a_function_without_parameters_is_reported(fn: Callable[[], None]) -> None:
    with pytest.raises(ValueError, match="names 'user', but .* has no parameters$"):
        Template.over("shop:{user}:e:o:v1", fn)


@pytest.mark.req("I-1")
@pytest.mark.parametrize(
    "field", ["{}", "{0}", "{user!r}", "{user:>5}", "{order[id]}", "{order.items[0]}", "{order.}", "{.id}", "{a b}"]
)
def test_invalid_template_fields_are_rejected_at_decoration(field: str) -> None:
    text = f"shop:{field}:e:o:v1"
    said = f"key template {text!r}: write {{name}} or {{name.attribute}}, not {field}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        Template.over(text, ship)


@pytest.mark.req("I-1")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shop:{user}:e:v1", f"a key has at least 5 parts, {SHAPE}; it has 4"),
        (":{user}:e:o:v1", "key part 'domain' is empty; only 'user' may be empty"),
        ("shop:{user}:e:o:", "key part 'version' is empty; only 'user' may be empty"),
        ("shop:{user}:e:o::v1", "key part 'operation' has an empty piece: 'o:'"),
        ("shop:{user}:e\n:o:v1", "key part 'entity' has a character that cannot be printed: 'e\\n'"),
    ],
)
def test_a_template_that_is_never_a_valid_key_is_rejected_at_decoration(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'key template {text!r}: {message}')}$"):
        Template.over(text, ship)


@pytest.mark.req("I-1")
@pytest.mark.parametrize("text", ["shop:{user:e:o:v1", "shop:user}:e:o:v1", "shop:{user}:e:o:v1{"])
def test_a_lone_brace_is_rejected_at_decoration(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'key template {text!r}: ')}"):  # followed by Python's message
        Template.over(text, ship)


@pytest.mark.req("I-1")
def test_a_template_must_be_text() -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(f'a key template must be text of the form {SHAPE}, not int')}$"):
        Template.over(5, ship)  # type: ignore[arg-type]
