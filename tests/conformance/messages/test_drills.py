"""Drills on every engine: stopped workers, invalid credentials, deleted consumers and streams. A Redis that loads."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from redrive import App, Event, journal
from redrive.ledger import Ledger
from redrive.messages import RedisStream
from redrive.ops import DeadLetterFilter, Operator
from redrive.testing import FaultServer
from tests.conformance.messages.brokers import Broker
from tests.conformance.messages.shop import Shop, work
from tests.conformance.messages.test_redis_stream import paid

NAMES = tuple(f"p-{n}" for n in range(6))


@contextmanager
def record_log() -> Iterator[list[Any]]:
    """Collect the log records of the block."""
    records: list[Any] = []
    hush = journal.subscribe(records.append, inline=True)
    try:
        yield records
    finally:
        hush()


@pytest.mark.req("M-7")
def test_the_worker_is_stopped_and_started_again(ledger: Ledger, broker: Broker) -> None:
    shop = Shop(ledger, broker.source(batch=5))
    names = [f"p-{n:02}" for n in range(60)]
    broker.send(*names)
    shop.work(lambda: len(shop.seen) >= 10)
    assert broker.pending() == 0, "what was read is stored before it stops"
    shop.work(lambda: len(shop.seen) >= 60)
    assert Counter(event.id for event in shop.seen) == Counter(names)
    assert broker.pending() == 0
    assert ledger.imbalance() == []


@pytest.mark.req("M-7", "M-4")
def test_dead_letters_of_an_invalid_credential_are_replayed(ledger: Ledger, broker: Broker) -> None:
    booked: list[str] = []
    with FaultServer(401) as server:
        app = App(ledger, sources=[broker.source()])

        @app.on("paid", name="crm")
        def crm(event: Event[Any]) -> None:
            try:
                urllib.request.urlopen(server.url, timeout=60).close()
            except urllib.error.HTTPError as refused:
                refused.close()
                raise
            booked.append(event.id)

        broker.send(*NAMES)
        work(app, lambda: len(ledger.dead_letters()) == len(NAMES))
        assert server.count == len(NAMES), "nobody tries a wrong credential again by himself"
        assert {letter.reason for letter in ledger.dead_letters()} == {"not_retryable"}
        server.script(200)
        ann = Operator(app, actor="ann")
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(kind="crm")), because="the credential was mended")
        work(app, lambda: len(booked) == len(NAMES))
    assert sorted(booked) == sorted(NAMES)
    assert {letter.status for letter in ledger.dead_letters()} == {"replayed"}


@pytest.mark.req("M-7")
def test_reading_continues_after_a_credential_of_the_broker_is_restored(ledger: Ledger, broker: Broker) -> None:
    with broker.login() as login, record_log() as records:
        shop = Shop(ledger, login.source)
        done: list[str] = []

        def reached() -> bool:
            if not done and len(shop.seen) == 1:
                done.append("revoked")
                login.revoke()
            if len(done) == 1 and any(one.kind == "chore_failed" for one in records):
                done.append("restored")
                login.restore()
                login.send("p-2")
            return len(shop.seen) == 2

        login.send("p-1")
        shop.work(reached)
        assert [event.id for event in shop.seen] == ["p-1", "p-2"]
        assert login.password not in str([one.fields for one in records])


@pytest.mark.req("M-7")
@pytest.mark.parametrize("part", ["consumer", "stream"])
def test_reading_continues_after_a_consumer_or_a_stream_is_deleted(ledger: Ledger, broker: Broker, part: str) -> None:
    shop = Shop(ledger, broker.source())
    broker.send("p-1")
    deleted: list[str] = []

    def reached() -> bool:
        if len(shop.seen) == 1 and not deleted:
            deleted.append(part)
            broker.delete(part)
            broker.send("p-2")
        return len(shop.seen) == 2

    shop.work(reached)
    assert [event.id for event in shop.seen] == ["p-1", "p-2"]
    assert shop.app.ledger.counts()["book"].submitted == 2


class Loading:
    """A proxy that replies LOADING to the first few commands."""

    def __init__(self, url: str, times: int) -> None:
        at = urlsplit(url)
        self._server = (str(at.hostname), int(at.port or 6379))
        self.left = times
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listens.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                theirs, _ = self._listens.accept()
            except OSError:
                return
            ours = socket.create_connection(self._server)
            threading.Thread(target=self._forward, args=(theirs, ours), daemon=True).start()
            threading.Thread(target=_pipe, args=(ours, theirs), daemon=True).start()

    def _forward(self, theirs: socket.socket, ours: socket.socket) -> None:
        try:
            while block := theirs.recv(65536):
                if self.left > 0 and b"XREADGROUP" in block:
                    self.left -= 1
                    theirs.sendall(b"-LOADING server is loading the dataset in memory\r\n")
                else:
                    ours.sendall(block)
        except OSError:
            pass
        ours.close()

    def close(self) -> None:
        self._listens.close()


def _pipe(source: socket.socket, target: socket.socket) -> None:
    try:
        while block := source.recv(65536):
            target.sendall(block)
    except OSError:
        pass
    target.close()


@pytest.mark.req("M-7")
def test_the_reader_waits_for_a_loading_server(ledger: Ledger, redis_url: str, client: redis.Redis, stream: str) -> None:
    loading = Loading(redis_url, times=3)
    shop = Shop(ledger, RedisStream(loading.url, stream, group="shop"))
    paid(client, stream, *NAMES)
    with record_log() as records:
        shop.work(lambda: len(shop.seen) == len(NAMES))
    loading.close()
    failed = [one.fields["error"] for one in records if one.kind == "chore_failed"]
    assert len(failed) == 3
    assert all("loading" in one for one in failed)
    assert Counter(event.id for event in shop.seen) == Counter(NAMES)
