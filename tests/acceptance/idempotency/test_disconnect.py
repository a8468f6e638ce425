"""A disconnect of the client does not stop the work under its key, in any framework."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from redrive import App
from redrive.idempotency import asgi, middleware
from tests.acceptance.idempotency.served import Client, serve_app

KEY = '"8e03978e"'


class Endpoint:
    """Work in two steps: it counts how often it began and how often it ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0
        self.go = threading.Event()

    async def work(self) -> None:
        self.begun += 1
        await asyncio.to_thread(self.go.wait, 60)
        self.ended += 1


def fastapi_stream(endpoint: Endpoint) -> Any:
    api = FastAPI()

    @api.post("/")
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            yield b"first "
            await endpoint.work()
            yield b"last"

        return StreamingResponse(parts())

    return api


def django(endpoint: Endpoint) -> Any:
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import HttpResponse
    from django.urls import path

    import tests.django_project  # noqa: F401  # configures Django

    async def view(request: Any) -> HttpResponse:
        await endpoint.work()
        return HttpResponse("first last")

    class Urls:
        urlpatterns = (path("", view),)

    settings.ROOT_URLCONF = Urls
    from django.urls import clear_url_caches, set_urlconf

    clear_url_caches()
    set_urlconf(None)
    return get_asgi_application()


def quart(endpoint: Endpoint) -> Any:
    from quart import Quart

    api = Quart("shop")

    @api.post("/")
    async def view() -> str:
        await endpoint.work()
        return "first last"

    return api


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened


def leave_during_the_work(client: Client, endpoint: Endpoint) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        head = f"POST / HTTP/1.1\r\nhost: 127.0.0.1:{client.port}\r\nidempotency-key: {KEY}\r\n"
        connection.sendall(f"{head}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        while not endpoint.begun:
            time.sleep(0.01)


@pytest.mark.req("I-4")
@pytest.mark.parametrize("framework", [fastapi_stream, django, quart])
def test_work_runs_once_when_the_client_disconnects(app: App, framework: Callable[[Endpoint], Any]) -> None:
    endpoint = Endpoint()
    with serve_app(app.idempotency(framework(endpoint))) as client:
        leave_during_the_work(client, endpoint)
        # The server reports the disconnect at once. A cancelled view would free its key now.
        end = time.monotonic() + 1
        while time.monotonic() < end:
            assert client.send("/", key=KEY).status == 409
            time.sleep(0.1)
        endpoint.go.set()
        end = time.monotonic() + 60
        while (answer := client.send("/", key=KEY)).status == 409:
            assert time.monotonic() < end
            time.sleep(0.05)
    assert (answer.status, answer.body, answer.replayed) == (200, b"first last", True)
    assert (endpoint.begun, endpoint.ended) == (1, 1)


def scope() -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k")]}


async def serve(app: App, asgi: Any, receive: Any, send: Any) -> None:
    await app.idempotency(asgi)(scope(), receive, send)


async def whole_body() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def ignore(message: Any) -> None:
    pass


async def respond(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})
    await send({"type": "http.response.body", "body": b"b"})


def test_work_survives_a_server_that_cancels_the_request(app: App) -> None:
    """Daphne cancels it when a client disconnects."""

    async def main() -> None:
        begun, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work(scope: Any, receive: Any, send: Any) -> None:
            begun.set()
            await go.wait()
            await respond(send)
            ended.set()

        request = asyncio.create_task(serve(app, work, whole_body, ignore))
        await begun.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert [record.status for record in app.keys().page()] == ["processing"]
        go.set()
        await ended.wait()

    asyncio.run(main())
    assert [record.status for record in app.keys().page()] == ["completed"]


def test_response_is_stored_when_sending_it_fails(app: App) -> None:
    """From ASGI 2.4 on, `send` raises OSError after a disconnect."""

    async def work(scope: Any, receive: Any, send: Any) -> None:
        await respond(send)

    async def broken(message: Any) -> None:
        raise OSError("the client is gone")

    asyncio.run(serve(app, work, whole_body, broken))
    (record,) = app.keys().page()
    assert record.status == "completed"
    assert b'"ab"' in (record.response or b"")


def test_disconnect_is_delivered_after_the_response(app: App) -> None:
    seen = []

    async def work(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await respond(send)
        seen.append(await receive())

    messages = iter([{"type": "http.request"}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    asyncio.run(serve(app, work, receive, ignore))
    assert seen == [{"type": "http.disconnect"}]


def test_an_endless_response_ends_after_the_disconnect(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "DISCONNECTED_SECONDS", 0.05)
    told = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0)
        told.append(gone.result())

    messages = iter([{"type": "http.request"}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    asyncio.run(serve(app, endless, receive, ignore))
    assert told == [{"type": "http.disconnect"}]
    assert app.keys().page() == []


def test_the_disconnect_is_withheld_until_the_response_is_stored(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quart cancels a request at the disconnect. Before the response is stored, that would free the key."""
    seen = []

    async def slow(keys: Any, settle: Any, *args: Any) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        seen.append("stored")
        settle(*args)

    monkeypatch.setattr(asgi, "settle_in_thread", slow)

    async def work(scope: Any, receive: Any, send: Any) -> None:
        await receive()

        async def listen() -> None:
            await receive()
            seen.append("disconnected")

        listening = asyncio.ensure_future(listen())
        await respond(send)
        await listening

    messages = iter([{"type": "http.request"}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    asyncio.run(serve(app, work, receive, ignore))
    assert seen == ["stored", "disconnected"]
