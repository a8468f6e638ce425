"""The Django middleware: its place among the others, its settings, and what it refuses at the start."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

import tests.django_project  # noqa: F401  # configures Django
from redrive import App
from redrive.django.idempotency import IdempotencyMiddleware, check_version
from tests.ledgers import sqlite_ledger

pytestmark = pytest.mark.req("X-3")
NAME = "redrive.django.IdempotencyMiddleware"
SESSION = "django.contrib.sessions.middleware.SessionMiddleware"
AUTH = "django.contrib.auth.middleware.AuthenticationMiddleware"
KEY = {"HTTP_IDEMPOTENCY_KEY": "k"}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(sqlite_ledger(tmp_path)) as opened:
        yield opened


class Views:
    calls = 0

    def charge(self, request: Any) -> HttpResponse:
        self.calls += 1
        return HttpResponse(str(self.calls), headers={"x-number": str(self.calls)})

    def empty(self, request: Any) -> HttpResponse:
        response = HttpResponse(status=204)
        del response["Content-Type"]
        return response


@pytest.fixture
def views(app: App) -> Iterator[Views]:
    views = Views()
    urls = (path("", views.charge), path("empty", views.empty))
    chosen = {"APP": app, "USER": lambda request: request.headers.get("x-user", "")}
    with override_settings(ROOT_URLCONF=urls, MIDDLEWARE=[NAME], REDRIVE_IDEMPOTENCY=chosen):
        yield views


def reading(get_response: Any) -> Any:
    """Middleware that parses the form of a request."""

    def middleware(request: Any) -> Any:
        request.POST.get("csrf_token")
        return get_response(request)

    return middleware


def test_a_body_that_another_middleware_has_read_is_an_error(views: Views) -> None:
    """Without the body, a request with another body would get the stored response."""
    with override_settings(MIDDLEWARE=[f"{__name__}.reading", NAME]):
        client = Client(raise_request_exception=True)
        with pytest.raises(RuntimeError, match="another middleware has read the body .* put that one after it in MIDDLEWARE"):
            client.post("/", {"cents": "1"}, **KEY)
    with override_settings(MIDDLEWARE=[NAME, f"{__name__}.reading"]):
        assert [Client().post("/", {"cents": cents}, **KEY).status_code for cents in ("1", "1", "2")] == [200, 200, 422]
    assert views.calls == 1


def test_a_body_above_the_limit_of_django_is_a_413(views: Views, app: App) -> None:
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=100):
        assert Client().post("/", b"x" * 101, "text/plain", **KEY).status_code == 413
    assert (views.calls, app.keys().page()) == (0, [])


def test_a_replay_has_no_headers_that_the_first_response_had_not(views: Views) -> None:
    first, again = (Client().post("/empty", **KEY) for _ in range(2))
    assert (first.status_code, again.status_code) == (204, 204)
    assert dict(again.headers) == {**first.headers, "idempotency-replayed": "true"}


def forgetful(get_response: Any) -> Any:
    """Middleware that replaces each response, and does not close it."""

    def middleware(request: Any) -> Any:
        get_response(request)
        return HttpResponse("replaced")

    return middleware


def test_a_stream_that_is_replaced_lets_its_lease_expire(views: Views, app: App) -> None:
    urls = (path("", lambda request: StreamingHttpResponse(iter([b"a", b"b"]))),)
    with override_settings(MIDDLEWARE=[f"{__name__}.forgetful", NAME], ROOT_URLCONF=urls):
        assert Client().post("/", **KEY).content == b"replaced"
    gc.collect()
    assert app.keys().renewer._renew_at == {}


def test_an_async_view_has_a_sync_user_function(views: Views) -> None:
    async def view(request: Any) -> HttpResponse:
        return views.charge(request)

    async def main() -> list[bytes]:
        client = AsyncClient()
        responses = [await client.post("/", headers={"idempotency-key": "k", "x-user": user}) for user in "aba"]
        return [response.content for response in responses]

    with override_settings(ROOT_URLCONF=(path("", view),)):
        assert asyncio.run(main()) == [b"1", b"2", b"1"]


def test_async_streams_of_known_length_are_stored_first(views: Views, app: App) -> None:
    async def view(request: Any) -> StreamingHttpResponse:
        async def pieces() -> Any:
            yield b"a"
            yield b"b"

        return StreamingHttpResponse(pieces(), headers={"content-length": "2"})

    async def main() -> None:
        response = await AsyncClient().post("/", headers={"idempotency-key": "k"})
        assert [record.status for record in app.keys().page()] == ["completed"]
        assert [piece async for piece in response] == [b"a", b"b"]
        assert (await AsyncClient().post("/", headers={"idempotency-key": "k"})).content == b"ab"

    with override_settings(ROOT_URLCONF=(path("", view),)):
        asyncio.run(main())


def test_a_sync_stream_of_known_length_does_not_block_the_event_loop(views: Views, app: App) -> None:
    readers = []

    def pieces() -> Iterator[bytes]:
        readers.append(threading.get_ident())
        yield b"ab"

    async def main() -> None:
        response = await AsyncClient().post("/", headers={"idempotency-key": "k"})
        assert [record.status for record in app.keys().page()] == ["completed"]
        assert response.getvalue() == b"ab"

    view = lambda request: StreamingHttpResponse(pieces(), headers={"content-length": "2"})  # noqa: E731
    with override_settings(ROOT_URLCONF=(path("", view),)):
        asyncio.run(main())
    assert readers != [threading.get_ident()]  # settling there would block it, too


def test_an_error_in_an_async_stream_frees_the_key(views: Views, app: App) -> None:
    async def view(request: Any) -> StreamingHttpResponse:
        async def pieces() -> Any:
            yield b"a"
            raise ZeroDivisionError("broken")

        return StreamingHttpResponse(pieces())

    async def main() -> None:
        response = await AsyncClient().post("/", headers={"idempotency-key": "k"})
        with pytest.raises(ZeroDivisionError):
            [piece async for piece in response]

    with override_settings(ROOT_URLCONF=(path("", view),)):
        asyncio.run(main())
    assert app.keys().page() == []


# ---- at the start

own_app: Any = None


def get_app() -> Any:
    return own_app


async def async_user(request: Any) -> str:
    return "ann"


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        (None, "REDRIVE_IDEMPOTENCY is not set; set it to a dict with the path of your app, such as {'APP': 'shop.jobs.app'}"),
        ("shop.app", "REDRIVE_IDEMPOTENCY is str; set it to a dict"),
        ({}, "REDRIVE_IDEMPOTENCY has no 'APP'; set it"),
        ({"REQUIERD": True}, "REDRIVE_IDEMPOTENCY: unknown name 'REQUIERD'; did you mean 'REQUIRED'?"),
        ({"required": True}, "REDRIVE_IDEMPOTENCY: unknown name 'required'; did you mean 'REQUIRED'?"),
        ({"APP": "app", "COLOUR": 1}, "unknown name 'COLOUR'; names: APP, USER, REQUIRED"),
        ({"APP": "nowhere.app"}, "REDRIVE_IDEMPOTENCY: APP 'nowhere.app': No module named 'nowhere'"),
        ({"APP": "nowhere"}, "REDRIVE_IDEMPOTENCY: APP 'nowhere': nowhere doesn't look like a module path"),
        ({"APP": f"{__name__}.NAME"}, "APP must be the path of a redrive.App, such as 'shop.jobs.app'; .* is str"),
        ({"APP": f"{__name__}:get_app"}, "APP must be the path of a redrive.App, .* is NoneType"),
        ({"APP": App("sqlite://"), "USER": f"{__name__}.async_user"}, "USER must be a sync function of the request"),
        ({"APP": App("sqlite://"), "USER": "ann.user"}, "USER 'ann.user': No module named 'ann'"),
        ({"APP": App("sqlite://"), "PATHS": "orders"}, "REDRIVE_IDEMPOTENCY: paths= must be a pattern"),
        ({"APP": App("sqlite://"), "MAX_BODY": "1MB"}, "REDRIVE_IDEMPOTENCY: max_body must be a whole number"),
        ({"APP": App("sqlite://"), "METHODS": "POST"}, "REDRIVE_IDEMPOTENCY: methods must be a collection"),
        ({"APP": App("sqlite://"), "REQUIRED": "yes"}, "REDRIVE_IDEMPOTENCY: required= must be True or False"),
    ],
)
def test_invalid_settings_are_rejected_at_the_start(chosen: Any, error: str) -> None:
    with (
        override_settings(MIDDLEWARE=[SESSION, AUTH, NAME], REDRIVE_IDEMPOTENCY=chosen),
        pytest.raises(ImproperlyConfigured, match=error),
    ):
        WSGIHandler()


class OwnMiddleware(IdempotencyMiddleware):
    """A subclass, as a project may have it."""


OWN = f"{__name__}.OwnMiddleware"


@pytest.mark.parametrize("order", [[NAME], [NAME, SESSION, AUTH], [SESSION, NAME, AUTH], [SESSION, OWN, AUTH]])
def test_a_place_without_a_user_is_rejected_at_the_start(app: App, order: list[str]) -> None:
    with (
        override_settings(MIDDLEWARE=order, REDRIVE_IDEMPOTENCY={"APP": app}),
        pytest.raises(ImproperlyConfigured, match="needs the user of the request; put .*AuthenticationMiddleware' before it"),
    ):
        WSGIHandler()
    for user in (None, lambda request: "ann"):
        with override_settings(MIDDLEWARE=order, REDRIVE_IDEMPOTENCY={"APP": app, "USER": user}):
            WSGIHandler()


def test_the_app_may_be_a_path_or_a_function(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.own_app", app)
    for name in (f"{__name__}.own_app", f"{__name__}:own_app", f"{__name__}.get_app"):
        with override_settings(MIDDLEWARE=[NAME], REDRIVE_IDEMPOTENCY={"APP": name, "USER": None}):
            WSGIHandler()


def test_old_versions_are_rejected() -> None:
    check_version((5, 2, 0, "final", 0))
    with pytest.raises(ImportError, match='needs Django 5.2 or later, not 4.2: pip install "redrive.django."$'):
        check_version((4, 2, 9, "final", 0))
