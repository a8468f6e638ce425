"""One shop in several frameworks: the same endpoints, with the middleware of each framework around them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from wsgiref.validate import validator

import flask
import flask_login
from asgiref.sync import iscoroutinefunction
from django import http as django_http
from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.test import override_settings
from django.urls import path
from django.utils.decorators import sync_and_async_middleware
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

import tests.django_project  # noqa: F401  # configures Django
from redrive import App, current
from redrive.flask import Idempotency
from tests.acceptance.idempotency.served import Client, serve_app, serve_wsgi

PIECE = b"x" * 1000


class World:
    """Records the calls of the endpoints."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.reset()

    def reset(self) -> None:
        self.calls: list[str] = []
        self.go.set()
        self.status = 200

    def call(self, name: str) -> int:
        self.calls.append(name)
        return len(self.calls)

    def wait(self) -> None:
        assert self.go.wait(60)

    def pieces(self, count: int) -> Iterator[bytes]:
        """A body whose first piece is sent before the others exist."""
        for number in range(count):
            yield PIECE
            if number == 0:
                self.wait()
        self.calls.append("stream ended")


def of_header(value: str | None) -> str:
    """The caller in `Authorization: Bearer ann`."""
    return "" if value is None else value.removeprefix("Bearer ")


# ---- ASGI


class User(SimpleUser):
    @property
    def identity(self) -> str:  # SimpleUser has none in Starlette 1.3
        return self.username


class Backend(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, User] | None:
        name = of_header(conn.headers.get("authorization"))
        return (AuthCredentials(), User(name)) if name else None


def fastapi_shop(app: App, world: World, options: dict[str, Any]) -> Any:
    api = FastAPI()
    api.add_middleware(app.idempotency, **{"user": "request.user", **options})
    api.add_middleware(AuthenticationMiddleware, backend=Backend())

    @api.post("/charge", status_code=201)
    async def charge(request: Request, response: Response) -> Any:
        number = world.call(str(current().key))
        await asyncio.to_thread(world.wait)
        response.headers["x-number"] = str(number)
        response.set_cookie("session", "secret")
        return {"number": number, "body": (await request.body()).decode()}

    @api.get("/charge")
    async def count() -> int:
        return world.call("get")

    @api.head("/charge")
    async def head() -> Response:
        world.call("head")
        return Response(headers={"content-length": "7"})

    @api.post("/status")
    async def status() -> Response:
        return JSONResponse({"n": world.call("status")}, world.status)

    @api.post("/raises")
    async def raises() -> None:
        if world.call("raises") == 1:
            raise ZeroDivisionError
        raise HTTPException(409, "already there")

    @api.post("/stream/{count}")
    async def stream(count: int) -> Response:
        world.call("stream")

        async def pieces() -> Any:
            source = world.pieces(count)
            while (piece := await asyncio.to_thread(next, source, None)) is not None:
                yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream")

    @api.post("/file")
    async def file() -> Response:
        world.call("file")
        return FileResponse(__file__)

    @api.post("/binary")
    async def binary(request: Request) -> Response:
        world.call("binary")
        return Response(b"\x00\xff" + await request.body(), media_type="application/octet-stream")

    return api


# ---- plain WSGI


def wsgi_shop(app: App, world: World, options: dict[str, Any], *, check: Callable[[Any], Any] = validator) -> Any:
    """The standard library checks both sides of the middleware against PEP 3333."""

    def shop(environ: Any, start_response: Any) -> Iterable[bytes]:
        method, parts = environ["REQUEST_METHOD"], environ["PATH_INFO"].split("/")[1:]
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0)) if environ.get("CONTENT_LENGTH") else b""
        respond = Responder(start_response)
        match method, parts:
            case "POST", ["charge"]:
                number = world.call(str(current().key))
                world.wait()
                text = json.dumps({"number": number, "body": body.decode()}).encode()
                return respond(201, text, ("x-number", str(number)), ("set-cookie", "session=secret"))
            case "GET", ["charge"]:
                return respond(200, str(world.call("get")).encode())
            case "HEAD", ["charge"]:
                world.call("head")
                start_response("200 OK", [("content-length", "7"), ("content-type", "text/plain")])
                return []
            case "POST", ["status"]:
                number = world.call("status")
                return respond(world.status, b"" if world.status in (204, 304) else str(number).encode())
            case "POST", ["raises"]:
                if world.call("raises") == 1:
                    raise ZeroDivisionError
                return respond(409, b"already there")
            case "POST", ["stream", count]:
                world.call("stream")
                start_response("200 OK", [("content-type", "text/event-stream")])
                return world.pieces(int(count))
            case "POST", ["file"]:
                world.call("file")
                wrap = environ.get("wsgi.file_wrapper", lambda file: iter(lambda: file.read(4096), b""))
                start_response("200 OK", [("content-type", "text/plain")])
                with Path(__file__).open("rb") as file:
                    return list(wrap(file))
            case "POST", ["binary"]:
                world.call("binary")
                return respond(200, b"\x00\xff" + body)
        return respond(404, b"")

    def user(environ: Any) -> str:
        return of_header(environ.get("HTTP_AUTHORIZATION"))

    return check(app.wsgi_idempotency(check(shop), **{"user": user, **options}))


class Responder(NamedTuple):
    start_response: Any

    def __call__(self, status: int, body: bytes, *headers: tuple[str, str]) -> list[bytes]:
        has_body = status not in (204, 304)
        own = [("content-type", "application/json"), ("content-length", str(len(body)))] if has_body else []
        self.start_response(f"{status} Phrase", [*own, *headers])
        return [body]


# ---- Flask


def flask_shop(app: App, world: World, options: dict[str, Any]) -> Any:
    api = flask.Flask("shop")
    api.secret_key = "x"
    manager = flask_login.LoginManager(api)

    class User(flask_login.UserMixin):  # type: ignore[misc]  # published without types
        def __init__(self, name: str) -> None:
            self.id = name

    manager.user_loader(User)
    Idempotency(app, api, **options)

    @api.post("/login/<name>")
    def sign_in(name: str) -> str:
        flask_login.login_user(User(name))
        return name

    @api.post("/charge")
    def charge() -> Any:
        number = world.call(str(current().key))
        world.wait()
        response = flask.jsonify(number=number, body=flask.request.get_data(as_text=True))
        response.set_cookie("session", "secret")
        return response, 201, {"x-number": str(number)}

    @api.route("/charge", methods=["GET", "HEAD"])
    def count() -> Any:
        is_head = flask.request.method == "HEAD"
        number = world.call(flask.request.method.lower())
        return flask.Response(headers={"content-length": "7"}) if is_head else str(number)

    @api.post("/status")
    def status() -> Any:
        return flask.jsonify(n=world.call("status")), world.status

    @api.post("/raises")
    def raises() -> Any:
        if world.call("raises") == 1:
            raise ZeroDivisionError
        flask.abort(409, "already there")

    @api.post("/stream/<int:count>")
    def stream(count: int) -> Any:
        world.call("stream")
        return flask.Response(world.pieces(count), mimetype="text/event-stream")

    @api.post("/file")
    def file() -> Any:
        world.call("file")
        return flask.send_file(__file__)

    @api.post("/binary")
    def binary() -> Any:
        world.call("binary")
        return b"\x00\xff" + flask.request.get_data()

    return api


# ---- Django


def django_views(world: World, *, is_async: bool) -> list[Any]:
    def charge_view(request: Any, number: int) -> Any:
        response = django_http.JsonResponse({"number": number, "body": request.body.decode()}, status=201)
        response["x-number"] = str(number)
        response.set_cookie("session", "secret")
        return response

    def count(request: Any) -> Any:
        number = world.call(request.method.lower())
        return (
            django_http.HttpResponse(headers={"content-length": "7"})
            if request.method == "HEAD"
            else django_http.HttpResponse(str(number))
        )

    def charge(request: Any) -> Any:
        if request.method != "POST":
            return count(request)
        number = world.call(str(current().key))
        world.wait()
        return charge_view(request, number)

    async def charge_async(request: Any) -> Any:
        if request.method != "POST":
            return count(request)
        number = world.call(str(current().key))
        await asyncio.to_thread(world.wait)
        return charge_view(request, number)

    def status(request: Any) -> Any:
        return django_http.JsonResponse({"n": world.call("status")}, status=world.status)

    def raises(request: Any) -> Any:
        if world.call("raises") == 1:
            raise ZeroDivisionError
        return django_http.HttpResponse("already there", status=409)

    def stream(request: Any, count: int) -> Any:
        world.call("stream")
        return django_http.StreamingHttpResponse(world.pieces(count), content_type="text/event-stream")

    async def stream_async(request: Any, count: int) -> Any:
        world.call("stream")

        async def pieces() -> Any:
            source = world.pieces(count)
            while (piece := await asyncio.to_thread(next, source, None)) is not None:
                yield piece

        return django_http.StreamingHttpResponse(pieces(), content_type="text/event-stream")

    def file(request: Any) -> Any:
        world.call("file")
        return django_http.FileResponse(Path(__file__).open("rb"))

    def binary(request: Any) -> Any:
        world.call("binary")
        return django_http.HttpResponse(b"\x00\xff" + request.body, content_type="application/octet-stream")

    def sign_in(request: Any, name: str) -> Any:
        user, _ = get_user_model().objects.get_or_create(username=name)
        login(request, user, "django.contrib.auth.backends.ModelBackend")
        return django_http.HttpResponse(name)

    return [
        path("charge", charge_async if is_async else charge),
        path("status", status),
        path("raises", raises),
        path("stream/<int:count>", stream_async if is_async else stream),
        path("file", file),
        path("binary", binary),
        path("login/<name>", sign_in),
    ]


@sync_and_async_middleware  # type: ignore[untyped-decorator]
def own_urls(get_response: Any) -> Any:
    """Middleware: the URLs of this shop, because Django has one setting for a process."""
    urls = tuple(settings.SHOP_URLS)

    def route(request: Any) -> Any:
        request.urlconf = urls
        return get_response(request)

    async def route_async(request: Any) -> Any:
        request.urlconf = urls
        return await get_response(request)

    return route_async if iscoroutinefunction(get_response) else route


MIDDLEWARE = [
    f"{__name__}.own_urls",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "redrive.django.IdempotencyMiddleware",
]


def django_shop(app: App, world: World, options: dict[str, Any], *, is_async: bool = False) -> Any:
    chosen = {"APP": app, **{name.upper(): value for name, value in options.items()}}
    urls = django_views(world, is_async=is_async)
    with override_settings(MIDDLEWARE=MIDDLEWARE, SHOP_URLS=urls, REDRIVE_IDEMPOTENCY=chosen):
        return get_asgi_application() if is_async else get_wsgi_application()


def header_of_scope(scope: Any) -> str:
    return next((value.decode() for name, value in scope["headers"] if name == b"x-user"), "")


class Framework(NamedTuple):
    """A framework: the shop in it, and the server for it."""

    shop: Callable[[App, World, dict[str, Any]], Any]
    serve: Callable[[Any], AbstractContextManager[Client]]
    user: Callable[..., str]
    """A function for `user=`: the header X-User."""
    request: Callable[..., bytes]
    """A function for `request=`: the first byte of the body."""


ASGI = Framework(fastapi_shop, serve_app, header_of_scope, lambda scope, body: body[:1])
DJANGO = Framework(django_shop, serve_wsgi, lambda request: request.headers.get("x-user", ""), lambda request: request.body[:1])
FRAMEWORKS = {
    "FastAPI": ASGI,
    "WSGI": Framework(wsgi_shop, serve_wsgi, lambda environ: environ.get("HTTP_X_USER", ""), lambda environ, body: body[:1]),
    "Flask": Framework(
        flask_shop, serve_wsgi, lambda: flask.request.headers.get("x-user", ""), lambda: flask.request.get_data()[:1]
    ),
    "Django": DJANGO,
    "Django under ASGI": DJANGO._replace(shop=partial(django_shop, is_async=True), serve=serve_app),
}


class Shops:
    """The shops of one framework, by their options. Each is served once."""

    def __init__(self, framework: Framework, app: App) -> None:
        self.app = app
        self.world = World()
        self.framework = framework
        self._stack = ExitStack()
        self._clients: dict[str, Client] = {}

    def serve(self, **options: Any) -> Client:
        """Serve a shop. `user` and `request` may be True, for the functions of the framework."""
        name = repr(sorted(options.items()))
        if name not in self._clients:
            own = {"user": self.framework.user, "request": self.framework.request}
            chosen = {option: own[option] if value is True and option in own else value for option, value in options.items()}
            shop = self.framework.shop(self.app, self.world, chosen)
            self._clients[name] = self._stack.enter_context(self.framework.serve(shop))
        return self._clients[name]

    def close(self) -> None:
        self._stack.close()
