"""Redaction: no secret survives in any position, and innocent text stays."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.journal.redaction import HIDDEN, redact, redact_text
from redrive.journal.redaction.redactor import MAX_TEXT_CHARS

NAMES = st.sampled_from(
    """authorization Proxy-Authorization cookie Set-Cookie password db_password userPassword secret clientSecret token
    access_token refreshToken x-auth-token api_key apiKey X-API-KEY aws_secret_access_key private-key signature sig dsn
    connectionString credentials auth""".split()
)
# Start and end occur nowhere else, so that half a secret would be found too.
CORE = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="&\"'\\"), max_size=12)
SECRETS = CORE.map(lambda core: f"Zq7{core}8Wx")
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(lambda core: f"Zq7{core}8Wx")
WORDS = st.lists(
    st.sampled_from("the call to crm failed again after 3 attempts (503), see log; status=503 at 12:30".split()), max_size=6
).map(" ".join)
HARMLESS = st.sampled_from("user order_id operation attempt status reason key run_id token_count".split())


def survives(text: object) -> bool:
    return "Zq7" in str(text) or "8Wx" in str(text)


@pytest.mark.req("J-4")
@given(NAMES, SECRETS, WORDS, WORDS, st.sampled_from(["=", ": ", ":", " = ", " => "]))
def test_no_value_of_a_secret_name_survives_in_text(name: str, secret: str, before: str, after: str, sign: str) -> None:
    text = redact_text(f"{before} {name}{sign}{secret} {after}")
    assert not survives(text)
    assert text.startswith(before)


@pytest.mark.req("J-4")
@given(NAMES, ANYTHING, WORDS, WORDS, st.integers(0, 2))
def test_no_value_of_a_secret_name_survives_in_json(name: str, secret: str, before: str, after: str, depth: int) -> None:
    document = json.dumps({"user": "ann", name: secret, "status": after})
    for _ in range(depth):
        document = json.dumps({"body": document})
    assert not survives(redact_text(f"{before} {document}"))


@pytest.mark.req("J-4")
@given(NAMES, ANYTHING, WORDS)
def test_no_value_of_a_secret_name_survives_in_a_repr(name: str, secret: str, before: str) -> None:
    for value in ({name: secret, "user": "ann"}, [(name, secret)], {name: secret.encode()}, [(name.encode(), secret.encode())]):
        assert not survives(redact_text(f"{before} {value!r} refused"))


@pytest.mark.req("J-4")
@given(NAMES, ANYTHING, st.lists(HARMLESS, max_size=3))
def test_no_value_of_a_secret_name_survives_in_a_query(name: str, secret: str, others: list[str]) -> None:
    query = "&".join([*(f"{other}=1" for other in others), f"{name}={quote(secret)}", "page=2"])
    text = redact_text(f"GET https://crm.example:8443/v1/orders?{query} failed: 503")
    assert not survives(text)
    if name.lower() not in (
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
    ):  # redacted to the end of the line
        assert text.endswith("&page=2 failed: 503")


@pytest.mark.req("J-4")
@given(SECRETS, st.sampled_from("postgres redis amqp mysql https http sftp".split()), WORDS)
def test_no_password_survives_in_an_address(secret: str, scheme: str, after: str) -> None:
    secret = secret.replace("<", "").replace(">", "")
    text = redact_text(f"cannot reach {scheme}://ann:{secret}@db.example:5432/shop {after}")
    assert not survives(text)
    assert "db.example:5432/shop" in text


@pytest.mark.req("J-4")
@given(
    st.text(st.sampled_from("abcXYZ019._~+/=-"), min_size=1, max_size=40), st.sampled_from(["Bearer", "bearer", "BEARER"]), WORDS
)
def test_no_bearer_token_survives(token: str, scheme: str, after: str) -> None:
    assert not survives(redact_text(f"sent {scheme} Zq7{token}8Wx {after}"))
    assert not survives(redact_text(f'{{"header": "{scheme} Zq7{token}8Wx"}} {after}'))


def nested(secret: str) -> st.SearchStrategy[Any]:
    """Values with a secret somewhere inside: under its name, or in a text."""
    leaf: st.SearchStrategy[Any] = st.builds(lambda name: {name: secret}, NAMES) | st.builds(lambda name: (name, secret), NAMES)
    leaf |= st.just(f"password={secret}") | st.just(f"Bearer {secret}".encode()) | st.just(ValueError(f"token: {secret}"))
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner | st.integers(), min_size=1, max_size=3)
            | st.dictionaries(HARMLESS, inner, min_size=1, max_size=3)
            | st.tuples(inner, st.none(), inner)
        ),
        max_leaves=8,
    )


@pytest.mark.req("J-4")
@given(SECRETS.flatmap(nested))
def test_no_secret_survives_in_a_nested_value(value: object) -> None:
    hidden = redact(value)
    assert not survives(hidden)
    json.dumps(hidden)  # only simple values are left


@pytest.mark.req("J-4")
@given(
    WORDS
    | st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd", "Zs", "Po"], exclude_characters=":,@'\"\\/#&"), max_size=200)
)
def test_text_without_names_signs_and_addresses_is_untouched(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.req("J-4")
@given(
    st.dictionaries(
        HARMLESS,
        st.recursive(st.integers() | st.booleans() | st.none() | WORDS, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    )
)
def test_innocent_fields_are_untouched(fields: dict[str, Any]) -> None:
    assert redact(fields) == fields


@pytest.mark.req("J-4")
@given(st.text(max_size=300) | st.text(st.sampled_from("token=password:\"'\\ &[]{}@/bearer"), max_size=300))
def test_redaction_is_bounded_and_idempotent_for_any_text(text: str) -> None:
    once = redact_text(text)
    assert len(once) <= max(len(text), 1) * (len(HIDDEN) + 1)
    assert len(once) <= MAX_TEXT_CHARS + 1
    assert redact_text(once) == once
