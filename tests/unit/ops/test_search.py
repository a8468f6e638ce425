"""The words of a search, parsed without a ledger."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.ledger.filters import JobFilter
from redrive.ops.search import FIELDS, MAX_WORDS, STATES, parse_search

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def parse(text: str) -> JobFilter:
    return parse_search(text, tags=("order_id", "order.id"), read_time=lambda _text: NOON)


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", JobFilter()),
        ("17", JobFilter(ids=(17,))),
        ("id:3,4", JobFilter(ids=(3, 4))),
        ("o-17", JobFilter(text="o-17")),
        ("connection refused", JobFilter(text="connection refused")),
        ("o-17*", JobFilter(key_prefix="o-17")),
        ("key:o-17", JobFilter(key="o-17")),
        ("key:shop:ann*", JobFilter(key_prefix="shop:ann")),
        ("shop:ann*", JobFilter(key_prefix="shop:ann")),
        ("shop:ann:o-1:receipt:v1", JobFilter(key="shop:ann:o-1:receipt:v1")),
        ("shop:ann:o-1", JobFilter(text="shop:ann:o-1")),
        ("user:ann type:crm.sync", JobFilter(user="ann", kind="crm.sync")),
        ("order_id:17 order.id:x", JobFilter(tags={"order_id": "17", "order.id": "x"})),
        ("correlation:r-1", JobFilter(correlation_id="r-1")),
        ("state:dead", JobFilter(state="dlq")),
        ('error:"timed out" worker:w1', JobFilter(error="timed out", worker="w1")),
        ("since:2h until:1h", JobFilter(since=NOON, until=NOON)),
        ('"a:b c"', JobFilter(text="a:b c")),
        ("kind:mail 17", JobFilter(kind="mail", ids=(17,))),
        ("tenant:t1", JobFilter(tenant="t1")),
    ],
)
def test_words_become_a_filter(text: str, wanted: JobFilter) -> None:
    assert parse(text) == wanted


@pytest.mark.req("Q-1")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour:red", r"unknown word 'colour' in 'colour:red': use id, key, user, .* worker, tenant, order.id, order_id, "),
        ("state:odd", r"unknown state 'odd': use queued, running"),
        ("key:", r"key: has no value; write key:VALUE"),
        ("user:a user:b", r"user: appears twice"),
        ("key:a shop:ann:o:r:v1", r"key: appears twice"),
        ("id:x", r"invalid id 'x': use a number"),
        ("a " * (MAX_WORDS + 1), r"use at most 20"),
        ("x" * 2001, r"at most 2,000 characters"),
        ("a\0b", r"without NUL"),
    ],
)
def test_an_invalid_search_names_the_correct_form(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_time_is_read_by_the_callers_rules() -> None:
    with pytest.raises(ValueError, match="invalid time 'yesterday': use 90s"):
        parse_search("since:yesterday")


@pytest.mark.req("Q-1")
@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_a_clear_error(text: str) -> None:
    try:
        problem = "" if isinstance(parse(text), JobFilter) else "not a filter"
    except ValueError as error:
        problem = str(error)
    assert not problem or problem.startswith(("unknown ", "invalid "))


_value = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"'), min_size=1, max_size=20).filter(
    lambda text: bool(text.strip()) and not text.endswith("*")
)


def format_search(wanted: JobFilter, /) -> str:
    """Return the words of a filter. `parse` reads them as the same filter."""
    words = []
    names = {field: word for word, field in FIELDS.items() if word != "kind"}
    for field, value in wanted.as_dict().items():
        if field == "tags":
            words += [f"{name}:{_quote(text)}" for name, text in wanted.tag_pairs]
        elif field == "ids":
            words.append(f"id:{','.join(map(str, wanted.ids))}")
        elif field == "key_prefix":
            words.append(f"key:{_quote(value + '*')}")
        elif field == "text":
            words.append(f'"{value}"')
        elif isinstance(value, datetime):
            words.append(f"{names[field]}:{value.isoformat()}")
        else:
            words.append(f"{names[field]}:{_quote(str(value))}")
    return " ".join(words)


def _quote(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) else value


@pytest.mark.req("Q-1")
@given(
    key=st.none() | _value,
    user=st.none() | _value,
    error=st.none() | _value,
    state=st.none() | st.sampled_from(sorted(set(STATES.values()))),
    ids=st.lists(st.integers(1, 2**63 - 1), max_size=3),
    order=st.none() | _value,
)
def test_the_words_of_a_filter_are_read_as_the_same_filter(
    key: str | None, user: str | None, error: str | None, state: str | None, ids: list[int], order: str | None
) -> None:
    tags = {} if order is None else {"order_id": order}
    wanted = JobFilter(ids=tuple(ids), key=key, user=user, error=error, state=state, tags=tags)  # type: ignore[arg-type]
    assert parse(format_search(wanted)) == wanted
