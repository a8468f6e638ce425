"""NatsStream: its options, its address, and the pure parts of its consumer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from redrive.messages import NatsStream
from redrive.messages.nats.address import NatsAddress
from redrive.messages.nats.delivery import parse_headers, parse_state, to_message
from redrive.messages.nats.publication import is_covered

REPLY = b"$JS.ACK.orders.shop.2.41.50.1794977062885379148.7"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nats://localhost", NatsAddress(("localhost:4222",))),
        ("tls://n1:1/", NatsAddress(("n1:1",), True)),
        ("nats://a:1,b,[::1]:3", NatsAddress(("a:1", "b:4222", "[::1]:3"))),
        ("nats://a:1, nats://b:2", NatsAddress(("a:1", "b:2"))),
        ("nats://ann:p%40ss%2C@a,b", NatsAddress(("a:4222", "b:4222"), False, "ann", "p@ss,")),
        ("nats://to%2Fken@a", NatsAddress(("a:4222",), token="to/ken")),
    ],
)
def test_an_address_has_servers_and_a_login(url: str, address: NatsAddress) -> None:
    assert NatsAddress.parse(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "http://x",
        "nats://",
        "nats://a:port",
        "nats://a/b",
        "nats://ann:s3cret@",
        "nats://a,tls://b",
        "nats://s3cret@a:x",
    ],
)
def test_an_invalid_address_is_rejected_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="NatsStream: .*nats://") as refused:
        NatsStream(url, "orders", consumer="shop")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"stream": "a.b"}, "stream must be a name without spaces"),
        ({"stream": "x" * 201}, "must not be longer than 200 bytes"),
        ({"consumer": "a b"}, "consumer must be a name"),
        ({"subjects": ["a..b"]}, "subjects= must be a subject, such as"),
        ({"dead_subject": "a b"}, "dead_subject= must be a subject"),
        ({"dead_subject": "a.*"}, r"dead_subject= must not contain \* or >"),
        ({"batch": 1001}, "batch= must be at most 1000"),
        ({"ack_wait": 0.01}, "ack_wait= must be at least 0.1 s"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        NatsStream("nats://localhost", **{"stream": "orders", "consumer": "shop", **options})


def test_wrong_types_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"subjects= must be a list; pass \['a'\]"):
        NatsStream("nats://localhost", "orders", consumer="shop", subjects="a")
    with pytest.raises(TypeError, match="decode= must be a function"):
        NatsStream("nats://localhost", "orders", consumer="shop", decode=1)  # type: ignore[arg-type]


def test_a_stream_shows_no_secrets_and_can_be_changed_by_replace() -> None:
    source = NatsStream("nats://ann:s3cret@localhost", "orders", consumer="shop", credentials="/secret.creds")
    assert "s3cret" not in repr(source)
    assert "secret" not in repr(source)
    assert (source.name, source.dead_subject, source.announces) == ("orders", "dead.orders", True)
    assert not dataclasses.replace(source, dead_subject=None).announces


def test_a_message_has_the_place_and_time_of_its_reply() -> None:
    message = to_message(b"orders.paid", REPLY, None, b"{}")
    assert (message.id, message.deliveries, message.raw) == ("41-1794977062885379148", 2, REPLY.decode())
    assert message.headers == {"type": "orders.paid"}
    assert message.at is not None
    assert message.at.isoformat().startswith("2026-11-18T0")
    long = REPLY.replace(b"$JS.ACK.", b"$JS.ACK.hub.ACCOUNT.") + b".random"
    assert to_message(b"orders.paid", long, None, b"{}").id == message.id


def test_malformed_headers_are_ignored() -> None:
    assert parse_headers(b"NATS/1.0\r\na:1\r\nb : \xff \r\nno colon\r\n\r\n") == {"a": "1", "b": "\udcff"}
    assert parse_headers(b"") == {}
    assert parse_state(b"NATS/1.0 404 No Messages\r\n\r\n") == (404, "No Messages")
    assert parse_state(b"NATS/1.0 503\r\n\r\n") == (503, "")
    assert parse_state(b"nonsense") == (0, "")
    assert parse_state(None) == (0, "")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["orders.>"], True),
        (["orders.*"], True),
        (["orders.dead"], True),
        ([">"], True),
        (["orders"], False),
        (["orders.dead.x"], False),
        (["*.paid"], False),
        ([], False),
    ],
)
def test_a_subject_is_covered_by_wildcards(patterns: list[str], expected: bool) -> None:
    assert is_covered("orders.dead", patterns) is expected
