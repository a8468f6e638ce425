"""NATS JetStream: types and ids, reservations, dead letters, poison messages, rights and TLS."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from redrive import Event
from redrive.core.clock import SYSTEM
from redrive.ledger import Ledger
from redrive.messages import DeadLetterNotice, Message, NatsStream
from redrive.messages.inbox import Inbox
from redrive.messages.nats.publication import OMITTED
from tests.conformance.messages.brokers import NatsBroker
from tests.conformance.messages.shop import Shop
from tests.servers.certificate import self_signed
from tests.servers.nats import MAX_PAYLOAD, own_nats_server
from tests.servers.nats_admin import NatsAdmin
from tests.servers.relay import Relay

NOW = SYSTEM.now()


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> NatsBroker:
    return NatsBroker(request)


@pytest.fixture
def connect() -> Iterator[Callable[[NatsStream], Any]]:
    """Opens consumers that are closed at the end."""
    opened: list[Any] = []

    def open_consumer(source: NatsStream) -> Any:
        opened.append(source.connect())
        return opened[-1]

    yield open_consumer
    for each in opened:
        each.close()


def read(consumer: Any, count: int) -> list[Message]:
    messages: list[Message] = []
    for _ in range(60):
        messages += consumer.read(100, 0.5)
        if len(messages) >= count:
            break
    assert len(messages) == count
    return messages


def publish_raw(url: str, subject: bytes, headers: bytes, body: bytes) -> None:
    """Publish bytes that no client would send, and wait until the server has them."""
    at = urlsplit(url)
    with socket.create_connection((str(at.hostname), int(at.port or 0)), timeout=10) as wire:
        lines = wire.makefile("rb")
        lines.readline()
        wire.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n')
        wire.sendall(b"HPUB %s %d %d\r\n%s%s\r\nPING\r\n" % (subject, len(headers), len(headers) + len(body), headers, body))
        assert lines.readline() == b"PONG\r\n"


@pytest.mark.req("E-2")
def test_subject_and_message_id_are_type_and_id_of_an_event(ledger: Ledger, broker: NatsBroker) -> None:
    subject = f"{broker.stream}.paid"
    shop = Shop(ledger, broker.source())
    shop.app.on(subject, name="by subject")(shop.book)
    admin = broker.admin
    sent_at = SYSTEM.now()
    admin.send(subject, [(b'{"n": 1}', {"Nats-Msg-Id": "m-1", "colour": "red"}), (b'{"n": 2}', {})])
    admin.send(subject, [(b'{"n": 3}', {"ce-type": "paid", "Nats-Msg-Id": "m-3"}), (b'{"n": 4}', {"type": "paid", "id": "own"})])
    admin.send(subject, [(b'{"n": 5}', {"type": "paid", "id": "own", "Nats-Msg-Id": "not stored by id"})])
    shop.work(lambda: len(shop.seen) == 4)
    seen = {event.payload["n"]: event for event in shop.seen}
    assert {number: (event.type, event.id) for number, event in seen.items() if number != 2} == {
        1: (subject, "m-1"),
        3: ("paid", "m-3"),
        4: ("paid", "own"),
    }
    assert seen[1].headers == {"colour": "red"}
    assert seen[3].headers == {"Nats-Subject": subject}
    sequence, _, nanoseconds = seen[2].id.partition("-")
    assert (sequence, len(nanoseconds)) == ("2", 19)
    assert seen[2].at is not None
    assert abs((seen[2].at - sent_at).total_seconds()) < 600


@pytest.mark.req("E-2")
def test_only_the_chosen_subjects_are_read(broker: NatsBroker, connect: Callable[[NatsStream], Any]) -> None:
    for name in ("a", "b", "c"):
        broker.admin.send(f"{broker.stream}.{name}", [(name.encode(), {})])
    one = NatsStream(broker.url, broker.stream, consumer="one", subjects=[f"{broker.stream}.b"])
    two = NatsStream(broker.url, broker.stream, consumer="two", subjects=[f"{broker.stream}.a", f"{broker.stream}.c"])
    assert [message.body for message in read(connect(one), 1)] == [b"b"]
    assert [message.body for message in read(connect(two), 2)] == [b"a", b"c"]
    other = NatsStream(broker.url, broker.stream, consumer="one", subjects=[f"{broker.stream}.a"])
    with pytest.raises(ValueError, match=r"it reads .*\.b, but subjects= is .*\.a; change it with nats consumer edit"):
        connect(other).read(1, 0.1)


@pytest.mark.req("E-2")
def test_messages_stay_reserved_while_they_are_not_stored(broker: NatsBroker, connect: Callable[[NatsStream], Any]) -> None:
    broker.send("p-1")
    source = broker.source(ack_wait=0.3)
    first, second = connect(source), connect(source)
    (message,) = read(first, 1)
    assert list(second.read(10, 1.5)) == [], "five times its ack_wait"
    first.ack([message])
    assert broker.pending() == 0


@pytest.mark.req("E-2")
def test_messages_behind_a_stalled_network_go_to_another_worker(broker: NatsBroker, ledger: Ledger) -> None:
    """The first worker continues when the network does. No message is handled twice."""
    with Relay(int(urlsplit(broker.url).port or 0)) as relay:
        broker.send("p-1")
        direct = broker.source(ack_wait=0.3)
        stalled = Shop(ledger, NatsStream(f"nats://127.0.0.1:{relay.port}", broker.stream, consumer="shop", ack_wait=0.3))
        reading = stalled.reading()
        messages = reading.consumer.read(10, 5.0)
        assert len(messages) == 1
        relay.hold()
        other = Shop(ledger, direct)
        other.work(lambda: len(other.seen) == 1)
        relay.go_on()
        reading._hand_over(messages)
        reading.do(NOW)
        reading.end()
    assert broker.pending() == 0
    assert ledger.counts()["book"].submitted == 1


@pytest.mark.req("E-2")
def test_a_batch_is_acknowledged_in_one_round_trip(broker: NatsBroker, connect: Callable[[NatsStream], Any]) -> None:
    with Relay(int(urlsplit(broker.url).port or 0), delay=0.1) as relay:
        broker.send(*(f"p-{number}" for number in range(100)))
        consumer = connect(NatsStream(f"nats://127.0.0.1:{relay.port}", broker.stream, consumer="shop"))
        messages = read(consumer, 100)
        before = relay.flights
        consumer.ack(messages)
        assert relay.flights - before <= 2
    assert broker.pending() == 0


@pytest.mark.req("E-2")
def test_deliveries_that_a_killed_server_forgot_do_not_stop_reading(
    broker: NatsBroker, connect: Callable[[NatsStream], Any]
) -> None:
    broker.send("p-1")
    consumer = connect(broker.source())
    (message,) = read(consumer, 1)
    forgotten = f"$JS.ACK.{broker.stream}.shop.1.900.900.1794977062885379148.0"
    consumer.ack([message, message._replace(id="900-1", raw=forgotten)])
    assert broker.pending() == 0
    broker.send("p-2")
    assert len(read(consumer, 1)) == 1


@pytest.mark.req("E-2")
def test_nothing_is_acknowledged_while_the_ledger_is_unavailable(
    ledger: Ledger, broker: NatsBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(ledger, broker.source(ack_wait=0.3))
    reading = shop.reading()
    broker.send("p-1", "p-2")

    def away(*_: object, **__: object) -> None:
        raise OSError("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "store", away)
        for _ in range(2):
            with pytest.raises(OSError, match="away"):
                reading.do(NOW)
        assert broker.pending() == 2
    reading.do(NOW)
    assert broker.pending() == 0
    reading.end()
    assert ledger.counts()["book"].ready == 2


@pytest.mark.req("E-2")
def test_poison_messages_are_dead_letters_and_others_go_on(ledger: Ledger, broker: NatsBroker) -> None:
    stream = broker.stream.encode()
    typed = b"NATS/1.0\r\ntype: paid\r\nid: %s\r\n"
    publish_raw(broker.url, stream + b".x", b"NATS/1.0\r\ntype: paid\r\nnote: \xff\xfe\r\n\r\n", b"{}")
    publish_raw(broker.url, stream + b".\xc3\x28", b"NATS/1.0\r\n\r\n", b"{}")
    publish_raw(broker.url, stream + b".x", b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"{}")
    publish_raw(broker.url, stream + b".x", b"NATS/1.0 999999999", b"{}")
    broker.admin.send(f"{broker.stream}.x", [(b"x" * 10_000_000, {"type": "paid", "id": "large"})])
    publish_raw(broker.url, stream + b".x", typed % b"deep" + b"\r\n", b"[" * 100_000)
    broker.send("p-1")
    shop = Shop(ledger, broker.source())
    shop.work(lambda: len(ledger.dead_letters()) == 4 and any(event.id == "p-1" for event in shop.seen), seconds=30)
    assert [event.id for event in shop.seen] == ["p-1"]
    errors = sorted(letter.error or "" for letter in ledger.dead_letters())
    assert broker.pending() == 0
    assert sum("not valid UTF-8" in error for error in errors) == 2
    assert sum("the ledger takes at most" in error for error in errors) == 1


@pytest.mark.req("E-2")
def test_a_repeated_announcement_is_stored_once(broker: NatsBroker, connect: Callable[[NatsStream], Any]) -> None:
    fields = {"id": "7", "created_at": "2026-11-18T05:00:00+00:00"}
    notices = [DeadLetterNotice(7, fields, b"{}"), DeadLetterNotice(8, {"id": "8"}, None)]
    consumer = connect(broker.source())
    consumer.announce(notices)
    consumer.announce(notices)
    another_app = connect(NatsStream(broker.url, broker.stream, consumer="billing"))
    another_app.announce(notices[:1])
    stored = broker.admin.messages(f"dead-{broker.stream}")
    assert [headers["id"] for headers, _ in stored] == ["7", "8", "7"]
    info: Any = broker.admin.run(lambda: broker.admin.js.stream_info(f"dead-{broker.stream}"))
    assert (info.config.subjects, info.config.max_msgs) == ([f"dead.{broker.stream}"], 100_000)


def test_a_dead_letter_that_is_too_large_is_announced_without_its_payload(
    broker: NatsBroker, connect: Callable[[NatsStream], Any]
) -> None:
    large = b"x" * (MAX_PAYLOAD - 20)
    connect(broker.source()).announce([DeadLetterNotice(1, {"id": "1", "error": "50 %\n done "}, large)])
    ((headers, body),) = broker.admin.messages(f"dead-{broker.stream}")
    assert (body, headers["error"]) == (b"", "50 %25%0A done%20")
    assert headers[OMITTED].startswith(f"{len(large)} bytes are too large")


def test_dead_letters_go_to_the_stream_that_has_their_subject(broker: NatsBroker, connect: Callable[[NatsStream], Any]) -> None:
    morgue = f"morgue-{broker.stream}"
    broker.admin.create_stream(morgue)
    connect(broker.source(dead_subject=f"{morgue}.shop")).announce([DeadLetterNotice(1, {"id": "1"}, b"{}")])
    assert len(broker.admin.messages(morgue)) == 1
    with pytest.raises(ValueError, match=r"dead letters would be read as messages; change dead_subject="):
        connect(broker.source(dead_subject=f"{broker.stream}.dead")).read(1, 0.1)


@pytest.mark.req("E-2")
def test_errors_name_the_fix(broker: NatsBroker, connect: Callable[[NatsStream], Any]) -> None:
    js, admin = broker.admin.js, broker.admin
    admin.run(lambda: js.add_consumer(broker.stream, durable_name="few", ack_policy="explicit", max_deliver=5))
    admin.run(lambda: js.add_consumer(broker.stream, durable_name="none", ack_policy="none"))
    admin.run(lambda: js.add_consumer(broker.stream, durable_name="push", ack_policy="explicit", deliver_subject="there"))
    cases: list[tuple[NatsStream, type[Exception], str]] = [
        (
            NatsStream(broker.url, "nosuch", consumer="shop"),
            LookupError,
            "NATS stream 'nosuch' does not exist on 127.0.0.1:.*; create it: nats stream add nosuch --subjects 'nosuch.>'",
        ),
        (
            NatsStream("nats://ann:s3cret-word@127.0.0.1:1", "orders", consumer="shop"),
            ConnectionError,
            r"NATS server 127.0.0.1:1: cannot connect \(Connection refused\); check address and server",
        ),
        (
            NatsStream(f"tls://127.0.0.1:{urlsplit(broker.url).port}", "orders", consumer="shop"),
            ConnectionError,
            "NATS server 127.0.0.1:.*: it offers no TLS; use nats:// or configure its TLS",
        ),
        (NatsStream(broker.url, broker.stream, consumer="few"), ValueError, "delivered 5 times would be lost; remove the limit"),
        (
            NatsStream(broker.url, broker.stream, consumer="none"),
            ValueError,
            "its ack policy is 'none', so messages",
        ),
        (NatsStream(broker.url, broker.stream, consumer="push"), ValueError, "it is a push consumer; pass another name"),
    ]
    for source, kind, text in cases:
        with pytest.raises(kind, match=text) as caught:
            connect(source).read(1, 0.1)
        assert "\n" not in str(caught.value)
        assert "s3cret" not in str(caught.value)


@pytest.mark.req("E-2")
def test_a_user_needs_few_rights(connect: Callable[[NatsStream], Any]) -> None:
    """The rights that the documentation lists are enough, and a missing one is named."""
    own = [
        "$JS.API.STREAM.INFO.orders",
        "$JS.API.CONSUMER.INFO.orders.shop",
        "$JS.API.CONSUMER.CREATE.orders.shop",
        "$JS.API.CONSUMER.MSG.NEXT.orders.shop",
        "$JS.ACK.orders.shop.>",
        "dead.orders",
    ]
    login = {"user": "shop", "password": "word-of-shop"}

    def users(*allowed: str) -> dict[str, Any]:
        permissions = {"publish": list(allowed), "subscribe": ["_INBOX.>"]}
        return {"users": [{"user": "admin", "password": "a"}, login | {"permissions": permissions}]}

    with own_nats_server(authorization=users(*own)) as server:
        host = f"127.0.0.1:{server.port}"
        source = NatsStream(f"nats://shop:word-of-shop@{host}", "orders", consumer="shop")
        notices = [DeadLetterNotice(1, {"id": "1"}, b"{}")]
        with NatsAdmin(f"nats://admin:a@{host}") as admin:
            admin.create_stream("orders")
            admin.send("orders.paid", [(b"{}", {}), (b"{}", {})])
            consumer = connect(source)
            first, second = read(consumer, 2)
            consumer.ack([first])
            consumer.nack([second], 0.0)
            with pytest.raises(PermissionError, match="permissions violation.*create it: nats stream add dead-orders"):
                consumer.announce(notices)
            admin.create_stream("dead-orders", subjects=["dead.orders"])
            consumer.announce(notices)
            assert len(admin.messages("dead-orders")) == 1
            server.configure(authorization=users(*own[:3]))
            with pytest.raises(PermissionError, match=r"permissions violation.*msg\.next.*grant this right") as caught:
                connect(source).read(1, 0.1)
            wrong = NatsStream(f"nats://shop:another-word@{host}", "orders", consumer="shop")
            with pytest.raises(PermissionError, match="the login was rejected; check user, password, token") as refused:
                connect(wrong).read(1, 0.1)
        assert not any("word" in str(each.value).replace("password", "") for each in (caught, refused))


@pytest.mark.req("E-2")
def test_tls_token_and_several_servers(tmp_path: Path, connect: Callable[[NatsStream], Any]) -> None:
    file = self_signed(tmp_path)
    trusting = ssl.create_default_context(cafile=file)
    tls = {"cert_file": str(file), "key_file": str(file)}
    with own_nats_server(tls=tls, authorization={"token": "t/k:n"}) as server:
        host = f"127.0.0.1:{server.port}"
        with NatsAdmin(f"tls://{host}", tls=trusting, token="t/k:n") as admin:
            admin.create_stream("orders")
            admin.send("orders.paid", [(b"{}", {})])
        source = NatsStream(f"tls://t%2Fk%3An@127.0.0.1:1,{host}", "orders", consumer="shop", tls=trusting)
        consumer = connect(source)
        consumer.ack(read(consumer, 1))
        strange = NatsStream(f"tls://t%2Fk%3An@{host}", "orders", consumer="shop")
        with pytest.raises(ConnectionError, match=r"TLS failed \(self.signed certificate\); pass the certificate authority"):
            connect(strange).read(1, 0.1)


def test_a_wrong_credentials_file_is_named(broker: NatsBroker, tmp_path: Path, connect: Callable[[NatsStream], Any]) -> None:
    with pytest.raises(PermissionError, match=r"NATS credentials '.*none.creds': cannot be read \(No such file"):
        connect(broker.source(credentials=tmp_path / "none.creds")).read(1, 0.1)
    (tmp_path / "other.creds").write_text("user: ann")
    with pytest.raises(ValueError, match="not a credentials file; create one: nsc generate creds"):
        connect(broker.source(credentials=str(tmp_path / "other.creds"))).read(1, 0.1)


def test_a_server_without_jetstream_is_named(connect: Callable[[NatsStream], Any]) -> None:
    with own_nats_server(jetstream=None) as server, pytest.raises(ConnectionError, match="JetStream is not enabled"):
        connect(NatsStream(server.url, "orders", consumer="shop")).read(1, 0.1)


def test_a_closed_consumer_leaves_no_thread(broker: NatsBroker) -> None:
    consumer = broker.source().connect()
    assert list(consumer.read(1, 0.2)) == []
    assert any(broker.stream in thread.name for thread in threading.enumerate())
    consumer.close()
    assert not any(broker.stream in thread.name for thread in threading.enumerate())


@pytest.mark.req("E-7")
def test_published_messages_keep_their_order_and_are_stored_once(broker: NatsBroker) -> None:
    publisher = NatsStream(broker.url, broker.stream).publisher()
    messages = [Message(f"p-{n}", b"%d" % n, {"type": "paid now", "id": f"p-{n}"}) for n in range(200)]
    own = Message("o", b"o", {"type": f"{broker.stream}.own", "id": "p-0", "source": "web"})
    publisher.publish(messages)
    publisher.publish([*messages[:10], own])
    stored = broker.admin.messages(broker.stream)
    assert [body for _, body in stored] == [b"%d" % n for n in range(200)] + [b"o"]
    subjects = broker.admin.subjects(broker.stream)
    assert subjects == {f"{broker.stream}.paid_now": 200, f"{broker.stream}.own": 1}
    broker.admin.create_stream(f"x{broker.stream}", subjects=["elsewhere.>"])
    publisher.close()
    for name, problem in (
        ("nosuch", "does not exist on"),
        (f"x{broker.stream}", "it has no subject .*paid_now; add it: nats stream"),
    ):
        publisher = NatsStream(broker.url, name).publisher()
        with pytest.raises(LookupError, match=f"NATS stream '{name}'.*{problem}"):
            publisher.publish(messages[:1])
        publisher.close()
    with pytest.raises(ValueError, match="to read it, pass consumer="):
        NatsStream(broker.url, broker.stream).connect()


def test_decode_receives_the_message(ledger: Ledger, broker: NatsBroker) -> None:
    def decode(message: Message) -> Event[Any]:
        return Event("paid", json.loads(message.body or b"null"), id=message.headers["number"])

    shop = Shop(ledger, broker.source(decode=decode))
    broker.admin.send(f"{broker.stream}.x", [(b'{"n": 1}', {"number": "9"})])
    shop.work(lambda: len(shop.seen) == 1)
    assert (shop.seen[0].id, shop.seen[0].payload) == ("9", {"n": 1})


@pytest.mark.req("E-7")
@pytest.mark.parametrize(
    ("headers", "body", "problem"),
    [({"a: b": ""}, b"{}", "rename the header"), ({}, b"x" * (MAX_PAYLOAD + 1), "publish a reference to large data")],
)
def test_a_message_that_nats_rejects_raises_a_value_error(
    broker: NatsBroker, headers: dict[str, str], body: bytes, problem: str
) -> None:
    publisher = NatsStream(broker.url, broker.stream).publisher()
    with pytest.raises(ValueError, match=problem):
        publisher.publish([Message("1", body, {"type": "paid", "id": "1", **headers})])
    publisher.publish([Message("2", b"{}", {"type": "paid", "id": "2", "note": "a\r\nNats-Rollup: all"})])
    ((stored, _),) = broker.admin.messages(broker.stream)
    assert stored["note"] == "a  Nats-Rollup: all"
    publisher.close()
