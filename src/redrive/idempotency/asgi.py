"""ASGI middleware for the Idempotency-Key header. The decisions are in `middleware.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.context import ActiveScope
from ..journal.bus import emit
from . import middleware
from .lease import KeyLease, scope_with_key, settle_in_thread
from .middleware import ANONYMOUS, MiddlewareOptions, MiddlewareRules, takes_arguments
from .request import RequestHead
from .response import RecordedResponse, ResponseRecording

if TYPE_CHECKING:
    from .keys import Keys

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Any, Receive, Send], Awaitable[None]]
_SENT_BY_SERVER = ("http.response.pathsend", "http.response.zerocopysend")


class AsgiMiddleware:
    """An ASGI application around another one. Event loops and threads may share it."""

    def __init__(
        self, keys: Callable[[], Keys], app: AsgiApp, options: MiddlewareOptions, /
    ) -> None:
        if not takes_arguments(app, 3):
            raise TypeError(
                f"app.idempotency wraps an ASGI application, not {app!r}; for WSGI use "
                "app.wsgi_idempotency, for Flask redrive.flask.Idempotency"
            )
        self._keys = keys
        self._app = app
        self._rules = MiddlewareRules(options)
        self._user = options.user
        self._request = options.request
        if self._user is request_user:
            _check_order(app)
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Receive, send: Send, /) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or not self._rules.takes_key(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        request = _request_of(scope)
        client_key = self._rules.client_key(request)
        if client_key is None:
            await self._app(scope, receive, send)
        elif isinstance(client_key, RecordedResponse):
            await _send_response(send, client_key)
        else:
            body = await self._read_body(receive)
            if isinstance(body, RecordedResponse):
                await _send_response(send, body)
            elif body is not None:
                connection = _Connection(body, receive, send)
                await self._serve_with_key(scope, request, connection, client_key)

    async def _serve_with_key(
        self, scope: Any, request: RequestHead, connection: _Connection, client_key: str
    ) -> None:
        body = connection.body
        user = ANONYMOUS if self._user is None else self._user(scope)
        compared = None if self._request is None else self._request(scope, body)
        identified = self._rules.identify(request, body, client_key, user, compared)
        if isinstance(identified, RecordedResponse):
            await _send_response(connection.send, identified)
            return
        begun = await self._rules.abegin(self._keys(), *identified)
        if isinstance(begun, RecordedResponse):
            await _send_response(connection.send, begun)
        else:
            await self._run_shielded(scope, connection, begun)

    async def _run_shielded(self, scope: Any, connection: _Connection, lease: KeyLease) -> None:
        """Run the application to its end, even after a disconnect or a cancellation by the server.

        A request that stopped half way would free its key, and a retry would run it a second time.
        """
        task = asyncio.get_running_loop().create_task(self._run_app(scope, connection, lease))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                connection.abandon()
                task.add_done_callback(log_error)
            raise

    async def _run_app(self, scope: Any, connection: _Connection, lease: KeyLease) -> None:
        keys = self._keys()

        async def settle(response: RecordedResponse) -> None:
            await settle_in_thread(keys, self._rules.settle, lease, response)
            # Only now: a framework that sees the disconnect cancels even this function.
            connection.finish()

        recorder = _Recorder(connection.send, settle, self._rules.max_body)
        entered = ActiveScope(scope_with_key(lease.key))
        try:
            await self._app(scope, connection.receive, recorder)
        except BaseException as error:
            await settle_in_thread(keys, lease.fail, error)
            raise
        finally:
            entered.leave()
        if not lease.is_settled:  # the application sent no response, or only a part of it
            await settle_in_thread(keys, lease.free)

    async def _read_body(self, receive: Receive) -> bytes | RecordedResponse | None:
        """Return the body, a response if it is too large, or None if the client disconnected."""
        pieces: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            piece = message.get("body", b"")
            length += len(piece)
            if length > self._rules.max_body:
                return self._rules.too_large()
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)


def _request_of(scope: Any) -> RequestHead:
    certificate = ((scope.get("extensions") or {}).get("tls") or {}).get("client_cert_name")
    return RequestHead(
        method=scope["method"],
        path=scope["path"],
        raw_path=scope.get("raw_path") or scope["path"].encode(),
        query=scope.get("query_string", b""),
        headers=[(name.lower(), value) for name, value in scope["headers"]],
        identities=() if certificate is None else (str(certificate).encode(),),
    )


def log_error(task: asyncio.Task[Any]) -> None:
    """Log the error of a cancelled request, which the server does not see."""
    if not task.cancelled() and (error := task.exception()) is not None:
        emit("request_failed", {"error_class": type(error).__name__, "error": str(error)})


# ---- the user of the framework ----


def request_user(scope: Any, /) -> str | int:
    """Return the user that Starlette's `AuthenticationMiddleware` has put into the scope.

    Raises:
        RuntimeError: No middleware has put a user there, or it has no identity.
    """
    user = scope.get("user")
    if user is None:
        raise RuntimeError(
            "idempotency: request.user is not set here; add AuthenticationMiddleware around the "
            "idempotency middleware (with add_middleware: after it), or pass user=, a function of "
            "the scope"
        )
    try:
        identity: str | int = user.identity if user.is_authenticated else ANONYMOUS
    except (AttributeError, NotImplementedError):
        raise RuntimeError(
            f"idempotency: request.user is {type(user).__name__}, which has no is_authenticated or "
            "no identity; define both, or pass user=lambda scope: scope['user'].id"
        ) from None
    return identity


def _check_order(app: Any) -> None:
    """Raise if Starlette's authentication is inside of the middleware, where it runs too late."""
    inner = app
    while inner is not None:
        modules = {kind.__module__ for kind in type(inner).__mro__}
        if "starlette.middleware.authentication" in modules:
            raise RuntimeError(
                f"idempotency: {type(inner).__name__} is inside of the idempotency middleware, "
                "which needs its user; call add_middleware for it after app.idempotency, or list "
                "it before in middleware=[...]"
            )
        inner = getattr(inner, "app", None)


# ---- the connection ----


class _Connection:
    """The connection of one request, as the application sees it.

    A disconnect is withheld until the response is complete, or for `DISCONNECTED_SECONDS`.
    """

    def __init__(self, body: bytes, receive: Receive, send: Send) -> None:
        self.body = body
        self._is_body_read = False
        self._receive = receive
        self._send = send
        self._is_open = True
        self._finished = asyncio.Event()

    def finish(self) -> None:
        """Stop withholding a disconnect: the key is settled."""
        self._finished.set()

    def abandon(self) -> None:
        """Send nothing more: the server has cancelled the request."""
        self._is_open = False

    async def receive(self) -> Message:
        """Return the body, which was already read, and then the disconnect."""
        if not self._is_body_read:
            self._is_body_read = True
            body, self.body = self.body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        message: Message = await self._receive() if self._is_open else {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            # An application that ends with its client, such as an endless stream, ends later.
            with suppress(TimeoutError):
                async with asyncio.timeout(middleware.DISCONNECTED_SECONDS):
                    await self._finished.wait()
        return message

    async def send(self, message: Message) -> None:
        """Send to the client until it disconnects. Servers raise OSError then."""
        if self._is_open:
            try:
                await self._send(message)
            except OSError:
                self._is_open = False


async def _send_response(send: Send, response: RecordedResponse) -> None:
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.body or b"", "more_body": False})


class _Recorder:
    """The `send` of one request. It passes the response to `on_complete` before the client has it.

    Only the last message of a streamed response is withheld.
    """

    def __init__(
        self, send: Send, on_complete: Callable[[RecordedResponse], Awaitable[None]], limit: int
    ) -> None:
        """Create a recorder around the `send` of the server. `limit`: maximum bytes of a body."""
        self._send = send
        self._on_complete = on_complete
        self._recording = ResponseRecording(limit)
        self._withheld: list[Message] = []
        self._is_withholding = False
        self._is_complete = False

    async def __call__(self, message: Message, /) -> None:
        kind = message["type"]
        is_running = self._recording.has_started and not self._is_complete
        if kind == "http.response.start" and not self._recording.has_started:
            self._recording.start(message["status"], list(message.get("headers", ())))
            self._is_withholding = True
            self._withheld.append(message)
        elif kind == "http.response.body" and is_running:
            await self._record(message)
        elif kind in _SENT_BY_SERVER and is_running:
            self._recording.drop_body()
            await self._complete(message)
        else:
            await self._send(message)

    async def _record(self, message: Message) -> None:
        self._recording.add(bytes(message.get("body", b"")))
        if not message.get("more_body", False):
            await self._complete(message)
        elif self._is_withholding and self._recording.is_withheld:
            self._withheld.append(message)
        else:
            await self._release()
            await self._send(message)

    async def _complete(self, last: Message) -> None:
        self._is_complete = True
        await self._on_complete(self._recording.response())
        await self._release()
        await self._send(last)

    async def _release(self) -> None:
        self._is_withholding = False
        messages, self._withheld = self._withheld, []
        for message in messages:
            await self._send(message)
