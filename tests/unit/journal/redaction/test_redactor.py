"""Redaction of values and texts: secrets are removed, other content stays."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from redrive.journal import hide
from redrive.journal.redaction import HIDDEN, is_secret, redact, redact_text, secrets
from redrive.journal.redaction.redactor import MAX_DEPTH, MAX_TEXT_CHARS

SECRET = "hunter2X"
NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


@pytest.fixture(autouse=True)
def unhidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo `hide` after each test."""
    monkeypatch.setattr(secrets, "_added_names", frozenset())


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "name",
    """authorization Authorization AUTHORIZATION proxy-authorization Proxy_Authorization cookie set-cookie Set-Cookie cookies
    password passwd pwd passphrase db_password userPassword secret client-secret client_secret clientSecret token access_token
    accessToken refresh-token id_token x-auth-token csrfToken api-key apikey apiKey api_key API_KEY x-api-key openai_api_key
    access_key aws_secret_access_key secretKey private_key accountKey sharedAccessKey signature X-Amz-Signature x-amz-credential
    X-Amz-Security-Token sig credential credentials dsn sentry_dsn connection_string connectionString auth basic_auth pass db_pass
    otp jwt config.token signing_key""".split(),
)
def test_secret_names_are_recognised_in_every_spelling(name: str) -> None:
    assert is_secret(name)
    assert redact({name: SECRET}) == {name: HIDDEN}
    assert SECRET not in redact_text(f"{name}={SECRET}")


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "name",
    """request_id trace_id user_id org_id actor_type actor_key run_id module_id mission_id mission_instance_id stage_id event_id
    source event_type idempotency_key operation attempt max_attempts latency_ms http_status retryable dead_letter_id reason wait
    retry_at error error_class max_tokens prompt_tokens author authored bypass compass partition_key key monkey keys
    passenger secretary tokenizer signal""".split(),
)
def test_ordinary_field_names_are_not_secret(name: str) -> None:
    assert not is_secret(name)
    assert redact({name: "o-1"}) == {name: "o-1"}
    assert redact_text(f"{name}=o-1") == f"{name}=o-1"


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "text",
    [
        f"https://h/p?token={SECRET}",
        f"https://h/p?a=1&api_key={SECRET}&b=2",
        f"url=https://h/p?token={SECRET}",
        f"x: y: password={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"authorization: ApiKey {SECRET} was refused",
        f"Proxy-Authorization: Negotiate {SECRET}",
        f'Authorization: Digest username="ann", response="{SECRET}"',
        f"{{'Authorization': 'ApiKey {SECRET}', 'X': 1}}",
        f"Cookie: a=b; session={SECRET}",
        f"Set-Cookie: a=b; {SECRET}",
        f"password=Token{SECRET}",
        f"password=Basic{SECRET}",
        f"password={SECRET},",
        f"password=a,b;{SECRET}",
        f"password=ab({SECRET}",
        f"password=Token('ab {SECRET}')",
        f"password=b'{SECRET}'",
        f"password=ab'{SECRET}",
        f"password: {SECRET}",
        f"password = '{SECRET} with spaces {SECRET}'",
        f'{{"password": "ab\\"{SECRET}", "user": "ann"}}',
        f'{{\\"password\\": \\"{SECRET}\\", \\"user\\": \\"ann\\"}}',
        f'{{\\\\\\"password\\\\\\": \\\\\\"{SECRET}\\\\\\"}}',
        f'{{"credentials": {{"user": "a", "key": "{SECRET}"}}}}',
        f'{{"token": ["{SECRET}"]}}',
        f"{{'password':'{SECRET}'}}",
        f'{{"accessToken":"{SECRET}","n":1}}',
        f'"password": "{SECRET}',
        f"password='{SECRET}",
        f"postgres://ann:{SECRET}@h/db",
        f"postgres://ann:p/{SECRET}@h/db",
        f"postgres://ann:p@{SECRET}@h/db",
        f"postgres://ann:p?{SECRET}#@h/db",
        f"redis://:{SECRET}@h",
        f"amqp://ann:1234{SECRET}@h",
        f"https://{SECRET}@code.example/x",
        f"HTTPS://{SECRET}:x-oauth-basic@code.example/x",
        f"https://ann:p@{SECRET}@h/x",
        f"sent Bearer {SECRET} to h",
        f"bearer {SECRET},",
        "Bearer Zq1",
        f"Basic dXNlcjp{SECRET}",
        f"Token {SECRET}",
        f"API key: {SECRET}",
        f"the api key = {SECRET}",
        f"with auth: {SECRET}",
        f"[('authorization', '{SECRET}'), ('accept', 'x')]",
        f"[(b'x-api-key', b'{SECRET}')]",
        f"['mysql', '--password', '{SECRET}']",
        f"mysql --password={SECRET}",
        f"password => {SECRET}",
        f"password := {SECRET}",
        f"password == {SECRET}",
        f"f takes (a: str, token: str = '{SECRET}')",
        f"f takes (a: str, token: str | None = '{SECRET}', b=1)",
        f"f takes (a: str, token: 'str' = '{SECRET}')",
        f"f takes (a: str, token: [redacted] = '{SECRET}')",
        f"eyJhbGciOiJI.eyJzdWIiOiIx.{SECRET}",
        f"Incorrect API key provided: sk-proj-abcdefgh{SECRET}",
        f"ghp_0123456789{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_text_contains_no_secret_after_redaction(text: str) -> None:
    hidden = redact_text(text)
    assert SECRET not in hidden
    assert "Zq1" not in hidden
    assert HIDDEN in hidden
    assert redact_text(hidden) == hidden


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "Connection refused",
        "[Errno 111] Connect call failed ('127.0.0.1', 5432)",
        "token expired",
        "Token expired. Sign in again",
        "Invalid token provided.",
        "TOKEN EXPIRED",
        "basic authentication failed",
        "missing bearer token",
        "Bearer authentication required",
        'WWW-Authenticate: Bearer realm="api", error="invalid"',
        "http://localhost:8080/path?email=a@b.example",
        "http://localhost:8080",
        "http://[::1]:80/x@y",
        "ssh://git@code.example/x",
        "mail to ann@example.com",
        "connection to 10.0.0.1:5432 refused",
        "max_tokens: 5, prompt_tokens=7",
        "workflow:user_123:run_456:module:resume:v1",
        "HTTP 503: try again at 12:30:05",
        '{"user": "ann", "rows": [1, 2]}',
        "key 'order_id' not found: idempotency_key=abc",
        "password=",
        "password:",
        "line one\nline two",
        "größer als 5 € – nicht möglich",
    ],
)
def test_innocent_text_is_untouched(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.req("J-4")
def test_text_around_a_secret_is_kept() -> None:
    assert redact_text(f"GET 'https://h/p?a=1&token={SECRET}&b=2' failed: 503") == (
        f"GET 'https://h/p?a=1&token={HIDDEN}&b=2' failed: 503"
    )
    assert redact_text(f'{{"user": "ann", "password": "{SECRET}", "n": 1}}') == f'{{"user": "ann", "password": {HIDDEN}, "n": 1}}'
    assert redact_text(f"postgres://ann:{SECRET}@db:5432/shop is down") == f"postgres://ann:{HIDDEN}@db:5432/shop is down"
    assert redact_text(f"Authorization: Bearer {SECRET}\nAccept: */*") == f"Authorization: {HIDDEN}\nAccept: */*"
    assert redact_text(f"(Bearer {SECRET}, again)") == f"(Bearer {HIDDEN}, again)"
    assert redact_text(f"password='{SECRET}' user=ann token={SECRET} x=1") == f"password={HIDDEN} user=ann token={HIDDEN} x=1"


@pytest.mark.req("J-4")
def test_nested_values_are_redacted_by_name_and_by_text() -> None:
    value = {
        "request": MappingProxyType({"headers": OrderedDict(Authorization=SECRET, accept="x"), "tries": (1, 2.5, True, None)}),
        "said": [f"token={SECRET}", {"deep": ({"password": SECRET},)}],
    }
    assert redact(value) == {
        "request": {"headers": {"Authorization": HIDDEN, "accept": "x"}, "tries": [1, 2.5, True, None]},
        "said": [f"token={HIDDEN}", {"deep": [{"password": HIDDEN}]}],
    }


@pytest.mark.req("J-4")
@pytest.mark.parametrize("secret", [SECRET, 12345, None, True, [SECRET], {"a": SECRET}, SECRET.encode(), object()])
def test_any_value_of_a_secret_name_is_redacted(secret: object) -> None:
    assert redact({"token": secret}) == {"token": HIDDEN}
    assert redact(secret, "token") == HIDDEN


@pytest.mark.req("J-4")
@pytest.mark.parametrize("kind", [tuple, list])
def test_a_header_in_a_list_is_redacted_by_its_name(kind: type) -> None:
    headers = [kind(("authorization", SECRET)), kind((b"x-api-key", SECRET.encode())), kind(("accept", "x"))]
    assert redact(headers) == [["authorization", HIDDEN], ["x-api-key", HIDDEN], ["accept", "x"]]
    assert redact(("token", "a", "b")) == ["token", "a", "b"]


@pytest.mark.req("J-4")
def test_bytes_are_read_as_text() -> None:
    assert redact({b"authorization": b"x", "body": f"token={SECRET}".encode(), "raw": bytearray(b"abc")}) == {
        "authorization": HIDDEN,
        "body": f"token={HIDDEN}",
        "raw": "abc",
    }


@pytest.mark.req("J-4")
def test_sets_become_lists_and_keys_become_text() -> None:
    assert redact({5: {f"token={SECRET}"}, ("a", 1): frozenset()}) == {"5": [f"token={HIDDEN}"], "('a', 1)": []}
    assert redact({f"x?token={SECRET}": 1}) == {f"x?token={HIDDEN}": 1}


@pytest.mark.req("J-4")
def test_an_object_is_recorded_as_its_text_without_secrets() -> None:
    @dataclass
    class Config:
        user: str
        password: str

    class Silent:
        def __str__(self) -> str:
            raise RuntimeError(SECRET)

    assert SECRET not in redact(Config("ann", SECRET))
    assert "user='ann'" in redact(Config("ann", SECRET))
    assert redact(ValueError(f"password={SECRET}")) == f"password={HIDDEN}"
    assert redact(Silent()) == "(Silent that cannot be read)"
    assert redact(Decimal("1.5")) == "1.5"
    assert redact(UUID(int=5)) == "00000000-0000-0000-0000-000000000005"


@pytest.mark.req("J-4")
@pytest.mark.parametrize("value", [None, True, 0, 1.5, NOW, date(2026, 1, 2), timedelta(1), NOW.time()])
def test_numbers_and_times_are_unchanged(value: object) -> None:
    assert redact(value) is value


@pytest.mark.req("J-4")
def test_a_cyclic_value_is_cut_at_the_depth_limit() -> None:
    ring: dict[str, Any] = {}
    ring["again"] = ring
    told = redact(ring)
    for _ in range(MAX_DEPTH):
        told = told["again"]
    assert told == "…"


@pytest.mark.req("J-4")
def test_long_text_is_cut() -> None:
    assert redact_text("ä " * MAX_TEXT_CHARS) == ("ä " * MAX_TEXT_CHARS)[:MAX_TEXT_CHARS] + "…"
    assert redact_text("ä " * (MAX_TEXT_CHARS // 2)) == "ä " * (MAX_TEXT_CHARS // 2)
    assert len(redact_text("word " * 100_000)) == MAX_TEXT_CHARS + 1


@pytest.mark.req("J-4")
@pytest.mark.parametrize(
    "secret", [f'"password": "x {SECRET}"', f"postgres://u:{SECRET}@h", f"Bearer {SECRET}", f"a?token={SECRET}"]
)
def test_a_secret_at_the_cut_is_removed_completely(secret: str) -> None:
    # Redacting the secrets in front shortens the text so much that the cut is visible.
    front = ("token='" + "s" * 4000 + "' ") * 2
    for before in range(7980, 8010):
        text = front[: before - len(secret) - 1] + "' " + secret + " tail" * 100
        assert SECRET[:4] not in redact_text(text), before


@pytest.mark.req("J-4")
def test_hide_adds_names() -> None:
    assert redact({"iban": "DE1", "order": "o-1"}) == {"iban": "DE1", "order": "o-1"}
    hide("IBAN", "shoe_size")
    assert redact({"iban": "DE1", "customer-iban": "DE1", "shoeSize": 42, "order": "o-1"}) == {
        "iban": HIDDEN,
        "customer-iban": HIDDEN,
        "shoeSize": HIDDEN,
        "order": "o-1",
    }
    assert redact_text("iban: DE1 is closed") == f"iban: {HIDDEN} is closed"


@pytest.mark.parametrize("name", ["", "_", None, 5, b"x"])
def test_hide_rejects_names_that_are_not_text(name: Any) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(f'the name of a secret field must be text: {name!r}')}$"):
        hide("fine", name)
    assert not is_secret("fine")


@pytest.mark.parametrize(
    "piece",
    [
        "://a:b",
        "a ",
        '"password": "',
        "token ",
        "=\\'",
        "a:",
        " ",
        "Bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "eyJabcdef.a.",
        "a",
        "token: a | ",
        "token: a = ",
    ],
)
def test_redaction_is_fast_for_adversarial_text(piece: str) -> None:
    text = "@" + piece * (50_000 // len(piece))
    began = time.process_time()
    redact_text(text)
    assert time.process_time() - began < 1  # takes milliseconds on an idle machine


def test_a_registered_value_that_is_a_name_does_not_expose_other_values() -> None:
    secrets.keep_secret("password", "client-secret")
    assert "hunter2" not in redact_text("login failed: password=hunter2")
    assert "hunter2" not in redact_text('{"client-secret": "hunter2"}')
    assert redact_text("the login is password") == "the login is [redacted]"
    secrets.forget_values()
