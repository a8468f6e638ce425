"""The console as a view of Django, under WSGI and ASGI, with Django's users and permissions.

The console is an ASGI application. The view passes each request on, and returns the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from ..app import App
from ..console import asgi
from ..console.security.credentials import name_of
from ..console.security.user import POLLING, User
from .project import find_project

Message: TypeAlias = MutableMapping[str, Any]

VIEW, OPERATE = "redrive.view_console", "redrive.operate_console"
"""Permissions of Django."""
USER = "redrive.user"
"""The user of a request, in the ASGI scope. None: a program with a token."""
STREAM = "live"
"""Path of the live updates."""
EVENT_STREAM = b"text/event-stream"


@login_not_required  # the console knows the tokens of programs, too
@csrf_exempt  # the console checks its own tokens, which are bound to the browser
async def show_console(request: HttpRequest, path: str = "") -> HttpResponseBase:
    """Show a page of the console to a user with the permission to view it.

    Args:
        request: The request.
        path: Path within the console.

    Raises:
        PermissionDenied: The user has neither permission.
    """
    user = await sync_to_async(_user_of)(request)  # it may query the database
    has_token = request.headers.get("authorization", "").lower().startswith("bearer ")
    is_page = request.method in ("GET", "HEAD") and path != STREAM and not path.startswith("api/")
    if user is None and is_page:
        return redirect_to_login(request.get_full_path())
    if user is None and not has_token:  # the console knows the tokens of programs
        return HttpResponse("Sign in first.\n", status=401, content_type="text/plain")
    can_stream = isinstance(request, ASGIRequest)
    if path == STREAM and not can_stream:
        return HttpResponse(status=204)  # a browser does not ask again
    scope = _scope_of(request, path, user, can_stream)
    return await ConsoleExchange(request.body).run(_application(find_project(None).app), scope)


for _alias in connections:  # an async view cannot run in the transaction of ATOMIC_REQUESTS
    transaction.non_atomic_requests(using=_alias)(show_console)


def _user_of(request: HttpRequest) -> User | None:
    """Return the user of a request with the role of its permissions. None: not signed in.

    `request.user`, because middleware that decides about users may not know `request.auser`.
    """
    account: Any = getattr(request, "user", None)
    if account is None:
        raise ImproperlyConfigured(
            "MIDDLEWARE: the console needs the user of a request; "
            "add 'django.contrib.auth.middleware.AuthenticationMiddleware'"
        )
    if not account.is_authenticated:
        return None
    name = name_of(account.get_username()) or f"user {account.pk}"
    if account.has_perm(OPERATE):
        return User(name, role="operator")
    if account.has_perm(VIEW):
        return User(name, role="viewer")
    raise PermissionDenied(f"{name} has neither the permission {VIEW} nor {OPERATE}")


async def _named_user(scope: Message) -> User | None:
    user: User | None = scope[USER]
    return user


@cache
def _application(app: App) -> Any:
    return asgi(app, who=_named_user)


def _scope_of(request: HttpRequest, path: str, user: User | None, can_stream: bool) -> Message:
    """Return the ASGI scope of a request, in which the console is mounted at the view."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers["host"] = request.get_host()  # Django knows which proxies it trusts
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.path.encode(),
        "root_path": request.path[: len(request.path) - len(path)].rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1", "replace"),
        "headers": [
            (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in headers.items()
        ],
        "client": (request.META.get("REMOTE_ADDR") or "127.0.0.1", 0),
        "server": (headers["host"], None),
        "extensions": {} if can_stream else {POLLING: {}},
        USER: user,
    }


class ConsoleExchange:
    """One request to an ASGI application, and its response. Belongs to one event loop.

    It is the body of a stream. If the browser leaves, the application gets a disconnect: a stream
    ends, and an action runs to its end.
    """

    def __init__(self, body: bytes) -> None:
        self._body: list[bytes] = [body]
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(1)
        """What the application has sent. It waits until a message is read. None: it has ended."""
        self._is_over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    async def run(self, application: Any, scope: Message) -> HttpResponseBase:
        """Call the application. A stream of events continues after the return."""
        self._task = asyncio.create_task(application(scope, self._receive, self._send))
        self._task.add_done_callback(self._wake_reader)
        try:
            start = await self._next_message()
        except asyncio.CancelledError:  # the browser has left
            self._is_over.set()
            raise
        if start is None:
            await self._task  # raises its error
            raise RuntimeError("the console has ended without a response")
        headers = [(name.lower(), value) for name, value in start["headers"]]
        is_stream = dict(headers).get(b"content-type", b"").startswith(EVENT_STREAM)
        response: HttpResponseBase
        if is_stream:
            response = StreamingHttpResponse(self, status=start["status"])
        else:
            content = b"".join([chunk async for chunk in self])
            response = HttpResponse(content, status=start["status"])
        for name, value in headers:
            if name == b"set-cookie":  # the only header that may repeat
                response.cookies.load(value.decode("latin-1"))
            elif name != b"content-length" or not is_stream:
                response.headers[name.decode("latin-1")] = value.decode("latin-1")
        return response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body. At the end, or if the browser is gone, end the application."""
        task, is_complete = self._task, False
        assert task is not None
        try:
            while not is_complete and (message := await self._next_message()) is not None:
                is_complete = not message.get("more_body")
                yield message.get("body", b"")
        finally:
            self._is_over.set()
            if not is_complete:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def close(self) -> None:
        """End a stream that may never have been read. Django calls it in a thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._is_over.set)

    async def _next_message(self) -> Message | None:
        if self._task is not None and self._task.done() and self._messages.empty():
            return None
        return await self._messages.get()

    def _wake_reader(self, _task: asyncio.Task[None]) -> None:
        if self._messages.empty():
            self._messages.put_nowait(None)

    async def _receive(self) -> Message:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._is_over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self._messages.put(message)
