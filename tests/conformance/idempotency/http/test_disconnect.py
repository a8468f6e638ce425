"""A client that disconnects, in each framework on a real server: the work is done once, and its response is stored."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from werkzeug.serving import make_server

from redrive import App
from redrive.idempotency import middleware
from tests.acceptance.idempotency.served import Answer, Client
from tests.ledgers import sqlite_ledger

from .shop import FRAMEWORKS, PIECE, World, wsgi_shop
from .test_requests import record_of, until

pytestmark = pytest.mark.req("I-4", "X-3")


@contextmanager
def connect(client: Client) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        yield connection


def request(client: Client, path: str, key: str, length: int = 2) -> bytes:
    """A request of two bytes, or the first two bytes of a longer one."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{client.port}\r\nidempotency-key: {key}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{{}}".encode()


def read_until(connection: socket.socket, text: bytes) -> bytes:
    read = b""
    while text not in read:
        piece = connection.recv(65536)
        assert piece, read
        read += piece
    return read


def retry(client: Client, path: str, key: str) -> Answer:
    """Send a request again until its response is stored."""
    end = time.monotonic() + 60
    while (answer := client.send(path, key=key)).status == 409:
        assert time.monotonic() < end
        time.sleep(0.02)
    return answer


def test_a_stream_is_passed_on_in_pieces(client: Client, world: World, key: str) -> None:
    world.go.clear()
    with connect(client) as connection:
        connection.sendall(request(client, "/stream/3", key))
        read = read_until(connection, PIECE)
        assert client.send("/stream/3", key=key).status == 409
        world.go.set()
        while piece := connection.recv(65536):
            read += piece
    assert read.count(PIECE[:1]) >= 3000
    again = client.send("/stream/3", key=key)
    assert (again.status, again.body, again.replayed) == (200, PIECE * 3, True)


def test_work_continues_without_its_client(client: Client, world: World, key: str) -> None:
    world.go.clear()
    with connect(client) as connection:
        connection.sendall(request(client, "/charge", key))
        until(lambda: bool(world.calls))
    for _ in range(5):  # a server that notices the disconnect does so at once
        assert client.send("/charge", key=key).status == 409
        time.sleep(0.02)
    world.go.set()
    answer = retry(client, "/charge", key)
    assert (answer.status, answer.replayed, answer.json["number"]) == (201, True, 1)
    assert len(world.calls) == 1


def test_a_stream_continues_without_its_client(client: Client, world: World, key: str) -> None:
    """More pieces than the buffers of the server and of the sockets hold, so that it notices."""
    count = 1000
    world.go.clear()
    with connect(client) as connection:
        connection.sendall(request(client, f"/stream/{count}", key))
        read_until(connection, PIECE[:1])
    world.go.set()
    answer = retry(client, f"/stream/{count}", key)
    assert (answer.status, answer.body, answer.replayed) == (200, PIECE * count, True)
    assert world.calls == ["stream", "stream ended"]


@pytest.mark.req("I-3")
def test_an_endless_stream_ends_some_time_after_its_client(
    client: Client, world: World, app: App, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "DISCONNECTED_SECONDS", 0.05)
    world.go.clear()
    with connect(client) as connection:
        connection.sendall(request(client, f"/stream/{10**9}", key))
        read_until(connection, PIECE[:1])
    world.go.set()
    until(lambda: record_of(app, key) is None)  # the key is free
    assert client.send("/stream/2", key=key).status == 200


@contextmanager
def serve_unbuffered(wsgi: Any) -> Iterator[Client]:
    """A server with threads that, unlike waitress, passes the body on as it arrives."""
    server = make_server("127.0.0.1", 0, wsgi, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Client(server.port)
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


def test_a_disconnect_during_the_request_begins_no_key(client: Client, world: World, app: App, key: str) -> None:
    with connect(client) as connection:
        connection.sendall(request(client, "/charge", key, length=100))
    assert client.send("/charge", key=key).status == 201
    assert len(world.calls) == 1


@pytest.mark.parametrize("name", ["WSGI", "Flask", "Django"])
def test_a_server_without_buffers_begins_no_key_either(name: str, django_users: None, tmp_path: Path, key: str) -> None:
    world = World()
    # The server itself does not pass the checks of the standard library: it has numbers in the environ.
    shop = partial(wsgi_shop, check=lambda wsgi: wsgi) if name == "WSGI" else FRAMEWORKS[name].shop
    with App(sqlite_ledger(tmp_path)) as app, serve_unbuffered(shop(app, world, {})) as client:
        with connect(client) as connection:
            connection.sendall(request(client, "/charge", key, length=100))
            connection.shutdown(socket.SHUT_WR)
            assert b" 400 " in read_until(connection, b"\r\n")
        assert world.calls == []
        assert app.keys().page() == []
        chunked = client.send("/charge", iter([b"one ", b"two"]), key)
        if name == "Django":  # which reads no chunked bodies under WSGI
            assert (chunked.status, world.calls) == (411, [])
        else:
            assert chunked.json["body"] == "one two"
