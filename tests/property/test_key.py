"""Key: text and back, for every part that is allowed."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from redrive import Key
from redrive.core.key import Template

# Escapes and similar texts more often than by chance.
TEXT = st.text(st.sampled_from(":%%235Aa.{} ü") | st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)
OPERATION = st.lists(st.text(st.sampled_from("%235Aa.-_"), min_size=1, max_size=5), min_size=1, max_size=4).map(":".join)
KEYS = st.builds(Key, TEXT, TEXT | st.just(""), TEXT, OPERATION, TEXT)


@pytest.mark.req("I-1")
@given(KEYS)
def test_a_key_survives_its_text_form(key: Key) -> None:
    assert Key.parse(str(key)) == key
    assert hash(Key.parse(str(key))) == hash(key)
    assert str(key).isprintable()


@pytest.mark.req("I-1")
@given(KEYS, KEYS)
def test_keys_have_equal_text_only_if_they_are_equal(one: Key, other: Key) -> None:
    assert (str(one) == str(other)) == (one == other)


@pytest.mark.req("I-1")
@given(st.text(st.sampled_from(":%3A25ab"), max_size=20) | st.text(max_size=20))
def test_any_text_is_a_stable_key_or_rejected(text: str) -> None:
    try:
        key = Key.parse(text)
    except ValueError:
        return
    assert Key.parse(str(key)) == key


@pytest.mark.req("I-1")
@given(TEXT, TEXT, TEXT, TEXT)
def test_a_template_gives_different_arguments_different_keys(user: str, entity: str, other_user: str, other_entity: str) -> None:
    assume((user, entity) != (other_user, other_entity))

    def ship(user: str, entity: str) -> None: ...

    template = Template.over("shop:{user}:{entity}:ship:v1", ship)
    assert template.key((user, entity), {}) == Key("shop", user, entity, "ship")
    assert str(template.key((user, entity), {})) != str(template.key((other_user, other_entity), {}))
