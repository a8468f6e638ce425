"""The console as one ASGI application: middleware, pages, REST API and static files.

Live updates tell open pages that the ledger has changed. One task polls for all pages, and none
polls while no page is open.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib.resources import files
from typing import NamedTuple

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from ..ops.operator import Operator
from ..ops.project.target import Operated, check_operated
from ..ops.sign_in.read_audit import ReadAudit
from ..ops.sign_in.sessions import AccessStore
from .api import ROUTERS as API_ROUTERS
from .pages import ROUTERS as PAGE_ROUTERS
from .pages.login import LoginThrottle
from .render.errors import add_error_handlers, problem
from .security.credentials import AccessControl
from .security.middleware import Scope, SecurityMiddleware, Send
from .security.sign_in import SignIn
from .view import CurrentView

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 8.0
"""Time between two polls. Each poll without a change doubles it."""
MAX_LISTENERS = 500
"""Pages that may listen at the same time. Each keeps a connection."""
KEEP_ALIVE_SECONDS = 15.0
"""Time after which an idle stream sends a comment, so that proxies keep the connection."""
STREAM_SECONDS = 60.0
"""Longest stream. The browser then connects again, so that a revoked session ends its updates."""
MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
"""Types of static files. The tables of the machine may lack them."""


class LiveUpdates:
    """The open pages, and the task that polls for them. Belongs to one event loop at a time."""

    def __init__(self, read_version: Callable[[], str]) -> None:
        """Poll with a function that returns another text after every change of the ledger."""
        self._read_version = read_version
        self._listeners: set[asyncio.Queue[str]] = set()
        self._new: set[asyncio.Queue[str]] = set()
        """Listeners since the last poll. They may have missed a change before it."""
        self._task: asyncio.Task[None] | None = None
        self.polls = 0
        """Number of polls."""

    @property
    def is_full(self) -> bool:
        """Whether no more pages can listen."""
        return len(self._listeners) >= MAX_LISTENERS

    async def stream(self) -> AsyncGenerator[str, None]:
        """Yield server-sent events: `change` with the current version, and comments in between."""
        listener: asyncio.Queue[str] = asyncio.Queue(1)
        self._listeners.add(listener)
        self._new.add(listener)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield "retry: 3000\n\n"
            loop = asyncio.get_running_loop()
            ends_at = loop.time() + STREAM_SECONDS
            while (remaining := ends_at - loop.time()) > 0:
                try:
                    wait = min(KEEP_ALIVE_SECONDS, remaining)
                    version = await asyncio.wait_for(listener.get(), wait)
                    yield f"event: change\ndata: {version}\n\n"
                except TimeoutError:
                    yield ": here\n\n"
            yield "retry: 100\n\n"  # milliseconds: the next stream starts at once
        finally:
            self._listeners.discard(listener)
            self._new.discard(listener)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _poll(self) -> None:
        before: str | None = None
        wait = MIN_POLL_SECONDS
        while True:
            new, self._new = self._new, set()
            try:
                version = await run_in_threadpool(self._read_version)
            except Exception:  # the ledger is unreachable; its return is a change
                version = "away"
            self.polls += 1
            has_changed = before is not None and version != before
            wait = MIN_POLL_SECONDS if version != before else min(2 * wait, MAX_POLL_SECONDS)
            for listener in self._listeners if has_changed else new & self._listeners:
                if listener.full():
                    listener.get_nowait()  # the newer version replaces an unread one
                listener.put_nowait(version)
            before = version
            await asyncio.sleep(wait)


class LiveResponse(StreamingResponse):
    """A stream of updates that frees its place with its connection, not with garbage collection."""

    async def stream_response(self, send: Send) -> None:
        """Send the stream."""
        async with aclosing(self.body_iterator):  # type: ignore[type-var]  # it is a generator
            await super().stream_response(send)


class StaticFile(NamedTuple):
    """A file for browsers. Immutable."""

    content: bytes
    media_type: str
    etag: str


def _read_static_files() -> dict[str, StaticFile]:
    """Read the files of the folder `static` by name. They may be in a zip."""
    found: dict[str, StaticFile] = {}
    for file in (files(__package__) / "static").iterdir():
        content = file.read_bytes()
        media_type = MEDIA_TYPES[file.name.rpartition(".")[2]]
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[file.name] = StaticFile(content, media_type, etag)
    return found


def create_application(
    target: Operated,
    access: AccessControl,
    /,
    sign_in: SignIn | None = None,
    *,
    audit_reads: bool = False,
) -> SecurityMiddleware:
    """Return the console of an app or a ledger.

    Args:
        target: The app or the ledger to show.
        access: The passwords, tokens and roles.
        sign_in: The programs that authenticate users.
        audit_reads: Whether the audit log records who opened which payload.
    """
    check_operated(target)
    sign_in = sign_in or SignIn()
    application = FastAPI(
        title="Redrive", openapi_url="/api/openapi.json", docs_url=None, redoc_url=None
    )
    application.state.target, application.state.access = target, access
    application.state.login_throttle = LoginThrottle()
    application.state.access_store = store = AccessStore(target)
    application.state.oidc = sign_in.oidc
    application.state.reads = ReadAudit() if audit_reads else None
    live = LiveUpdates(Operator(target, actor="console").overview.change_token)
    add_error_handlers(application)
    for router in PAGE_ROUTERS:
        application.include_router(router, include_in_schema=False)
    for router in API_ROUTERS:
        application.include_router(router)
    static_files = _read_static_files()

    @application.api_route("/static/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def send_static_file(name: str, request: Request) -> Response:
        file = static_files.get(name)
        if file is None:
            raise HTTPException(404)
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers={"etag": file.etag})
        return Response(file.content, media_type=file.media_type, headers={"etag": file.etag})

    @application.get("/live", include_in_schema=False)
    async def stream_changes(_view: CurrentView) -> Response:
        if live.is_full:
            return PlainTextResponse("Too many open pages.\n", 503, {"retry-after": "30"})
        headers = {"x-accel-buffering": "no"}
        return LiveResponse(live.stream(), media_type="text/event-stream", headers=headers)

    def render(scope: Scope, status: int, detail: str) -> Response:
        return problem(Request({**scope, "app": application}), status, detail)

    return SecurityMiddleware(application, access, store, render, sign_in)
