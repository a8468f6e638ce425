"""The middleware around Starlette and around bare ASGI applications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, BaseUser
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from redrive import App
from tests.acceptance.idempotency.served import serve_app


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened


def test_starlette_with_a_middleware_that_streams_everything(app: App) -> None:
    calls = []

    async def endpoint(request: Request) -> Response:
        calls.append(await request.json())
        return JSONResponse(calls)

    async def passing(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    middleware = [Middleware(app.idempotency, required=True), Middleware(BaseHTTPMiddleware, dispatch=passing)]
    for layers in (middleware, middleware[::-1]):
        calls.clear()
        key = f'"{len(layers)}-{layers is middleware}"'
        with serve_app(Starlette(routes=[Route("/", endpoint, methods=["POST"])], middleware=layers)) as client:
            assert [client.send("/", b"1", key).json for _ in range(2)] == [[1], [1]]
            assert client.send("/", b"1").status == 400
        assert calls == [1]


async def plain(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [[b"x-a", b"1"], [b"X-A", b"2"]]})
    await send({"type": "http.response.body", "body": body})


def call(asgi: Any, scope: dict[str, Any], *messages: dict[str, Any]) -> list[Any]:
    sent: list[Any] = []
    left = iter(messages)

    async def receive() -> Any:
        return next(left, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(asgi(scope, receive, send))
    return sent


def scope(**more: Any) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": "/", "headers": [(b"Idempotency-Key", b"k")], **more}


def test_a_bare_asgi_application_is_wrapped(app: App) -> None:
    asgi = app.idempotency(plain)
    pieces = ({"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.request", "body": b"b"})
    first, again = call(asgi, scope(), *pieces), call(asgi, scope(), *pieces)
    assert first[1]["body"] == again[1]["body"] == b"ab"
    assert again[0]["headers"] == [(b"x-a", b"1"), (b"X-A", b"2"), (b"idempotency-replayed", b"true")]


def test_other_scopes_are_passed_through(app: App) -> None:
    seen = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    asgi = app.idempotency(inner, required=True)
    call(asgi, {"type": "lifespan"})
    call(asgi, {"type": "websocket", "path": "/"})
    assert seen == ["lifespan", "websocket"]
    assert not Path(app.url.removeprefix("sqlite:///")).exists()  # nothing was opened for it


def test_a_disconnect_during_the_request_begins_no_key(app: App) -> None:
    assert call(app.idempotency(plain), scope(), {"type": "http.request", "body": b"a", "more_body": True}) == []
    assert app.keys().page() == []


def test_an_incomplete_response_frees_the_key(app: App) -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        pass

    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})

    for asgi in (nothing, half):
        call(app.idempotency(asgi), scope(), {"type": "http.request"})
        assert app.keys().page() == []


def test_a_file_sent_by_the_server_is_not_stored(app: App) -> None:
    async def file(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.pathsend", "path": "/etc/hosts"})

    sent = call(app.idempotency(file), scope(), {"type": "http.request"})
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.pathsend"]
    assert call(app.idempotency(file), scope(), {"type": "http.request"})[0]["status"] == 409


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"methods": "POST"}, "methods must be a collection"),
        ({"user": "ann"}, "user= must be a function"),
        ({"domain": ""}, "'domain' is empty"),
        ({"keep": 0}, "keep must be above 0"),
        ({"max_body": 0}, "max_body must be at least 1"),
        ({"paths": "payments/*"}, "not 'payments/.*', which matches none"),
        ({"paths": ["/payments"]}, "paths= must be a pattern of whole paths"),
    ],
)
def test_invalid_middleware_options_are_rejected(app: App, options: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        app.idempotency(plain, **options)


class Backend(AuthenticationBackend):
    async def authenticate(self, conn: Any) -> Any:
        return AuthCredentials(), Caller()


class Caller(BaseUser):
    is_authenticated = True


def shop(*middleware: Middleware) -> Starlette:
    return Starlette(routes=[Route("/", lambda request: Response("a"), methods=["POST"])], middleware=list(middleware))


@pytest.mark.req("X-3")
def test_authentication_inside_of_the_middleware_is_rejected_at_the_start(app: App) -> None:
    authentication = Middleware(AuthenticationMiddleware, backend=Backend())
    api = shop(Middleware(app.idempotency, user="request.user"), Middleware(BaseHTTPMiddleware), authentication)
    with pytest.raises(RuntimeError, match="AuthenticationMiddleware is inside of the idempotency middleware"):
        call(api, {"type": "lifespan"})
    call(shop(authentication, Middleware(app.idempotency, user="request.user")), {"type": "lifespan"})


@pytest.mark.req("X-3")
@pytest.mark.parametrize(
    ("user", "error"),
    [
        (None, "request.user is not set here; add AuthenticationMiddleware around the idempotency middleware"),
        (Caller(), "request.user is Caller, which has no is_authenticated or no identity"),
        ("ann", "request.user is str, which has no is_authenticated or no identity"),
    ],
)
def test_a_request_without_a_known_user_is_an_error(app: App, user: Any, error: str) -> None:
    with pytest.raises(RuntimeError, match=error):
        call(app.idempotency(plain, user="request.user"), scope(user=user), {"type": "http.request"})
    assert app.keys().page() == []


def test_method_names_are_compared_without_case(app: App) -> None:
    sent = call(app.idempotency(plain, required=True), scope(method="post", headers=[]), {"type": "http.request"})
    assert sent[0]["status"] == 400
