"""Where a name is replaced, and where it stays."""

from __future__ import annotations

import json

import pytest

from redrive.ledger.jobs.user_mentions import in_actor, in_customers, in_item, in_json, in_reason, in_signature, in_text, name_of
from redrive.ledger.stats.failure_groups import ALL_SIGNATURES


@pytest.mark.parametrize("user", ["a", "42", "null", "true", "1.5", ".*", "[", "\\", '"', "a:b", "ä", "threads", "kinds"])
def test_json_stays_valid_and_keeps_fields_and_numbers(user: str) -> None:
    value = {user: 42, "threads": 42, "of": [None, True, 1.5, -42, {"kinds": [user], "says": f"by {user} "}], "kind": user}
    name = name_of(user)
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        found = json.loads(in_json(name, text))
        assert found["of"][4].pop("says") == f"by {name.pseudonym} "
        assert found == {**value, "of": [None, True, 1.5, -42, {"kinds": [user]}]}


def test_json_without_a_mention_stays_as_it_was_written() -> None:
    text = '{ "a" : 1.0, "b":[1e400, "x\\u00e9", 12345678901234567890], "a": "\\/" }'
    assert in_json(name_of("42"), text) == text


def test_text_that_is_not_json_stays_as_it_is() -> None:
    assert in_json(name_of("42"), '{"sweep": of 42') == '{"sweep": of 42'


@pytest.mark.parametrize("text", ["anna", "ann-2", "ann.smith", "mary.ann", "planned", "ann_b"])
def test_a_name_inside_a_longer_word_stays(text: str) -> None:
    assert in_text(name_of("ann"), f"no user {text} here") == f"no user {text} here"


@pytest.mark.parametrize("text", ["ann", "(ann)", "ann@example.org", "shop:ann:1:mail:v1", "ann.", "'ann'", "/ann/"])
def test_a_name_as_a_whole_word_is_replaced(text: str) -> None:
    assert "ann" not in in_text(name_of("ann"), text)


@pytest.mark.parametrize("text", ["at 2026-01-31T12:42:01.42+00:00", "at 12:42", "10.0.42.1", "version 1.42"])
def test_timestamps_and_dotted_numbers_stay(text: str) -> None:
    assert in_text(name_of("42"), text) == text


def test_the_user_in_a_key_of_numbers_is_replaced() -> None:
    name = name_of("12")
    assert in_text(name, "key shop:12:42:charge:v1") == f"key shop:{name.pseudonym}:42:charge:v1"


def test_texts_that_differ_by_spelling_still_differ() -> None:
    name = name_of("a:b")
    assert in_signature(name, "Stop: no a:b") != in_signature(name, "Stop: no a%3Ab")


def test_an_item_changes_only_if_it_is_a_key_of_the_user() -> None:
    assert in_item(name_of("42"), "42") == "42"
    assert in_item(name_of("42"), "tile:42") == "tile:42"
    assert in_item(name_of("42"), "shop:bob:42:mail:v1") == "shop:bob:42:mail:v1"
    assert "42" not in in_item(name_of("42"), "shop:42:o:mail:v1").split(":")
    assert in_item(name_of("ann"), "ann") == "ann"
    assert in_item(name_of("ann"), "to:ann").startswith("to:erased-")


def test_words_that_redrive_compares_stay() -> None:
    assert in_reason(name_of("lost_worker"), "lost_worker") == "lost_worker"
    assert in_actor(name_of("redrive"), "redrive") == "redrive"
    assert in_signature(name_of("404"), "HTTPStatusError: status 404") == "HTTPStatusError: status 404"
    assert in_signature(name_of(ALL_SIGNATURES), ALL_SIGNATURES) == ALL_SIGNATURES


def test_a_list_of_customers_changes_only_where_one_is_the_user() -> None:
    name = name_of("acme")
    assert json.loads(in_customers(name, '["acme", "acme.de", "acme north"]')) == [name.pseudonym, "acme.de", "acme north"]
