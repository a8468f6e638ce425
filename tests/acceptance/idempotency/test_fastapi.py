"""The middleware in FastAPI, on a real server, by the rules of the IETF draft."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse

from redrive import App, current
from tests.acceptance.idempotency.served import Client, serve_app

UUID = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
PROBLEM = "application/problem+json"


class World:
    """Records the calls of the endpoints."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go = threading.Event()
        self.go.set()
        self.status = 200


def api_of(app: App, world: World, **options: Any) -> FastAPI:
    api = FastAPI()
    api.add_middleware(app.idempotency, **options)

    @api.post("/charge", status_code=201)
    async def charge(body: dict[str, Any], response: Response) -> dict[str, Any]:
        world.calls.append(str(current().key))
        await asyncio.to_thread(world.go.wait, 20)
        response.headers["x-number"] = str(len(world.calls))
        response.set_cookie("session", "secret")
        return {"number": len(world.calls), "body": body}

    @api.post("/status")
    async def status() -> Response:
        world.calls.append("status")
        return JSONResponse({"n": len(world.calls)}, world.status)

    @api.post("/raises")
    async def raises() -> None:
        world.calls.append("raises")
        if len(world.calls) == 1:
            raise ZeroDivisionError
        raise HTTPException(409, "already there")

    @api.post("/stream/{pieces}")
    async def stream(pieces: int) -> Response:
        world.calls.append("stream")

        async def parts() -> Any:
            for number in range(pieces):
                yield b"x" * 1000
                if number == 0:
                    await asyncio.to_thread(world.go.wait, 20)

        return StreamingResponse(parts(), media_type="text/event-stream")

    @api.post("/file")
    async def file() -> Response:
        world.calls.append("file")
        return FileResponse(__file__)

    @api.post("/binary")
    async def binary(request: Request) -> Response:
        world.calls.append("binary")
        return Response(b"\x00\xff" + await request.body(), media_type="application/octet-stream")

    @api.get("/charge")
    async def get() -> int:
        world.calls.append("get")
        return len(world.calls)

    return api


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened


@pytest.fixture
def client(app: App, world: World) -> Iterator[Client]:
    with serve_app(api_of(app, world)) as opened:
        yield opened


@pytest.mark.req("I-4")
def test_a_retry_gets_the_stored_response(client: Client, world: World, app: App) -> None:
    first = client.send("/charge", b'{"cents":1}', UUID)
    again = client.send("/charge", b'{"cents":1}', UUID)
    assert (first.status, first.json) == (again.status, again.json) == (201, {"number": 1, "body": {"cents": 1}})
    assert (first.replayed, again.replayed) == (False, True)
    assert again.headers["x-number"] == "1"
    assert again.headers["content-length"] == str(len(again.body))
    assert "set-cookie" in first.headers
    assert "set-cookie" not in again.headers  # would revive a session
    assert world.calls == ["http::8e03978e-40d5-43e8-bc93-6894a57f9324:request:v1"]
    stored = app.keys().page()[0].response
    assert stored is not None
    assert b"secret" not in stored
    bare = client.send("/charge", b'{"cents":1}', UUID.strip('"'))
    assert bare.replayed  # the same key without quotes


@pytest.mark.req("I-4")
def test_a_request_without_a_key_runs_each_time(client: Client, app: App, world: World) -> None:
    assert [client.send("/charge").json["number"] for _ in range(2)] == [1, 2]
    assert client.send("/charge", key=UUID, method="GET", body=b"").json == 3  # safe methods need none
    with serve_app(api_of(app, world, required=True)) as strict:
        refused = strict.send("/charge")
        assert (refused.status, refused.headers["content-type"]) == (400, PROBLEM)
        assert refused.json["title"] == "Idempotency-Key is missing"
    assert len(world.calls) == 3


@pytest.mark.req("I-4")
def test_another_payload_is_rejected(client: Client, world: World) -> None:
    client.send("/charge", b'{"cents":1}', UUID)
    for other in (
        client.send("/charge", b'{"cents":2}', UUID),
        client.send("/charge?x=1", b'{"cents":1}', UUID),
        client.send("/status", b'{"cents":1}', UUID),
        client.send("/charge", b'{"cents":1}', UUID, headers={"authorization": "Bearer somebody-else"}),
    ):
        assert (other.status, other.headers["content-type"]) == (422, PROBLEM)
        assert other.json["title"] == "Idempotency-Key is already used"
    assert len(world.calls) == 1


@pytest.mark.req("I-4")
def test_a_running_request_is_a_409(client: Client, world: World) -> None:
    world.go.clear()
    answers = []
    first = threading.Thread(target=lambda: answers.append(client.send("/charge", key=UUID)))
    first.start()
    while not world.calls:
        time.sleep(0.01)
    busy = client.send("/charge", key=UUID)
    world.go.set()
    first.join(30)
    assert (busy.status, busy.headers["content-type"]) == (409, PROBLEM)
    assert 1 <= int(busy.headers["retry-after"]) <= 30
    assert busy.json["title"] == "A request is outstanding for this Idempotency-Key"
    assert answers[0].status == 201
    assert client.send("/charge", key=UUID).replayed
    assert len(world.calls) == 1


@pytest.mark.req("I-3")
@pytest.mark.parametrize(
    ("status", "stored"),
    [(status, True) for status in (200, 204, 303, 402, 409, 410, 412)]
    + [(status, False) for status in (400, 401, 403, 404, 405, 408, 415, 422, 425, 429, 500, 502, 503)],
)
def test_statuses_decide_whether_responses_are_stored(client: Client, world: World, status: int, stored: bool) -> None:
    world.status = status
    answers = [client.send("/status", key=UUID) for _ in range(2)]
    assert [answer.status for answer in answers] == [status, status]
    assert answers[1].replayed is stored
    assert len(world.calls) == (1 if stored else 2)


def test_an_exception_frees_the_key(client: Client, world: World) -> None:
    assert client.send("/raises", key=UUID).status == 500
    answers = [client.send("/raises", key=UUID) for _ in range(2)]
    assert [(answer.status, answer.replayed) for answer in answers] == [(409, False), (409, True)]
    assert len(world.calls) == 2


@pytest.mark.parametrize("key", ['"open', '""', "a b", "a,b", '"a"b"', "x" * 256, '"ä"'])
def test_an_invalid_key_is_a_400(client: Client, world: World, key: str) -> None:
    refused = client.send("/charge", key=key)
    assert (refused.status, refused.headers["content-type"]) == (400, PROBLEM)
    assert refused.json["title"] == "Idempotency-Key is not valid"
    assert world.calls == []


def test_binary_bodies_are_replayed(client: Client) -> None:
    first, again = (client.send("/binary", b"\xfe", UUID) for _ in range(2))
    assert first.body == again.body == b"\x00\xff\xfe"
    assert again.replayed


def test_a_stream_is_passed_on_in_pieces(client: Client, world: World) -> None:
    """The first piece arrives before the rest exists, and the whole response is stored."""
    world.go.clear()
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        host = f"127.0.0.1:{client.port}"
        head = f"POST /stream/3 HTTP/1.1\r\nhost: {host}\r\nidempotency-key: {UUID}\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: 2\r\nconnection: close\r\n\r\n{{}}".encode())
        read = b""
        while b"xxx" not in read:
            read += connection.recv(65536)
        world.go.set()
        while piece := connection.recv(65536):
            read += piece
    assert read.count(b"x") >= 3000
    again = client.send("/stream/3", key=UUID)
    assert (again.status, again.body, again.replayed) == (200, b"x" * 3000, True)


def test_a_response_that_is_too_large_is_sent_and_not_repeated(app: App, world: World) -> None:
    with serve_app(api_of(app, world, max_body=2500)) as client:
        assert client.send("/stream/3", key='"a"').body == b"x" * 3000
        again = client.send("/stream/3", key='"a"')
        assert (again.status, again.replayed, again.json["title"]) == (409, True, "The response was not stored")
        assert client.send("/file", key='"b"').status == 200
        assert client.send("/file", key='"b"').status in (200, 409)
        assert world.calls == ["stream", "file"]
        refused = client.send("/charge", b"x" * 2501, key='"c"')
        assert (refused.status, refused.headers["content-type"]) == (413, PROBLEM)


def test_a_disconnected_client_gets_the_response_later(client: Client, world: World) -> None:
    world.go.clear()
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        host = f"127.0.0.1:{client.port}"
        head = f"POST /charge HTTP/1.1\r\nhost: {host}\r\nidempotency-key: {UUID}\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: 2\r\n\r\n{{}}".encode())
        while not world.calls:
            time.sleep(0.01)
    world.go.set()
    end = time.monotonic() + 60
    while (answer := client.send("/charge", key=UUID)).status == 409:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (answer.status, answer.replayed, answer.json["number"]) == (201, True, 1)


def test_a_disconnect_during_the_request_begins_no_key(client: Client, world: World) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        head = f"POST /charge HTTP/1.1\r\nhost: 127.0.0.1:{client.port}\r\nidempotency-key: {UUID}\r\ncontent-length: 100\r\n\r\n"
        connection.sendall(head.encode() + b"half")
    assert client.send("/charge", key=UUID).status == 201
    assert len(world.calls) == 1


def test_a_key_belongs_to_its_user(app: App, world: World) -> None:
    def user(scope: Any) -> str:
        return next((value.decode() for name, value in scope["headers"] if name == b"x-user"), "")

    with serve_app(api_of(app, world, user=user, domain="shop")) as client:
        numbers = [client.send("/charge", key=UUID, headers={"x-user": name}).json["number"] for name in ("ann", "bob", "ann")]
    assert numbers == [1, 2, 1]
    assert [(record.domain, record.user_id) for record in app.keys().page()] == [("shop", "ann"), ("shop", "bob")]


def test_keys_are_required_only_for_the_configured_paths_and_methods(app: App, world: World) -> None:
    with serve_app(api_of(app, world, required=True, paths="/char*", methods=("post",))) as client:
        assert client.send("/charge").status == 400
        assert client.send("/status").status == 200


def test_the_middleware_works_on_postgres(postgres_db: str, world: World) -> None:
    with App(postgres_db, migrate=True) as app, serve_app(api_of(app, world)) as client:
        first, again = (client.send("/charge", key=UUID) for _ in range(2))
        assert first.body == again.body
        assert again.replayed
        assert client.send("/charge", b'{"a":1}', UUID).status == 422
