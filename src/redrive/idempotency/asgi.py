"""ASGI middleware for the Idempotency-Key header, after draft-ietf-httpapi-idempotency-key-header-07."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from contextlib import suppress
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.context import Entered
from ..core.key import Key
from ..core.seconds import Seconds, lasting, whole
from ..errors import KeyBusy, KeyConflict, KeyFailed
from ..journal.bus import emit
from .capture import Capture
from .failure import freeing
from .fingerprint import fingerprint
from .header import BadHeader, key_in
from .hold import Hold, aacquire, scope_of, settled
from .record import Ident
from .response import FREEING, REPLAYED, Response, bounded, loaded, problem

if TYPE_CHECKING:
    from .keys import Keys

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGI: TypeAlias = Callable[[Any, Receive, Send], Awaitable[None]]
UserOf: TypeAlias = Callable[[Mapping[str, Any]], "str | int"]
RequestOf: TypeAlias = Callable[[Mapping[str, Any], bytes], object]

HEADER = b"idempotency-key"
DISCONNECTED_SECONDS = 300.0
"""Seconds that an application has to finish its response after the client has disconnected. Then it is told."""

_IDENTIFYING = re.compile(rb"host|cookie|auth|token|key|secret|session|user|tenant|account|client.?id|customer|org|team|actor")
_ANONYMOUS = frozenset((HEADER, b"user-agent", b"x-csrf-token", b"x-csrftoken", b"x-xsrf-token", b"origin"))
"""Headers that match `_IDENTIFYING` by chance: they name no caller, and may differ in a retry."""
_CREDENTIALS = (b"cookie", b"key", b"token", b"session", b"secret")
_BOUNDARY = re.compile(rb'\s*multipart/[^;]+;.*?boundary="?([^";,]{1,70})"?', re.IGNORECASE | re.DOTALL)


class Middleware:
    """An ASGI application around another one. Event loops and threads may share it."""

    def __init__(
        self,
        keys: Callable[[], Keys],
        asgi: ASGI,
        /,
        *,
        required: bool,
        methods: Collection[str],
        paths: str,
        domain: str,
        user: UserOf | None,
        keep: Seconds,
        max_body: int,
        request: RequestOf | None = None,
        free_on: Collection[int] = FREEING,
    ) -> None:
        if not callable(asgi):
            raise TypeError(f"the middleware must wrap an ASGI application, not {asgi!r}")
        if not isinstance(paths, str) or not paths.startswith(("/", "*")):
            raise ValueError(f"paths= must be a pattern of whole paths, such as '/payments/*', not {paths!r}, which matches none")
        if isinstance(methods, str):
            raise TypeError(f"methods must be a collection of names, not one text; pass ({methods!r},)")
        if user is not None and not callable(user):
            raise TypeError(f"user= must be a function of the ASGI scope that returns the caller, not {user!r}")
        if request is not None and not callable(request):
            raise TypeError(f"request= must be a function of the ASGI scope and the body, not {request!r}")
        Key(domain, "", "x", "request")  # an invalid domain is refused here, not at the first request
        self._keys = keys
        self._asgi = asgi
        self._required = required
        self._methods = frozenset(method.upper() for method in methods)
        self._paths = paths
        self._domain = domain
        self._user = user
        self._request = request
        self._keep = lasting("keep", keep)
        self._max_body = whole("max_body", max_body)
        self._free_on = _statuses(free_on)
        self._frees = freeing(Exception)  # an exception of the application becomes a 500, which is not stored
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Receive, send: Send, /) -> None:
        """Serve one connection."""
        if not self._covers(scope):
            await self._asgi(scope, receive, send)
            return
        try:
            given = key_in([value for name, value in scope["headers"] if name.lower() == HEADER])
        except BadHeader as wrong:
            await answered(send, problem(400, "Idempotency-Key is not valid", str(wrong)))
            return
        if given is not None:
            await self._served(scope, receive, send, given)
        elif self._required:
            detail = "This operation requires an Idempotency-Key header, so that a retry cannot run it twice."
            await answered(send, problem(400, "Idempotency-Key is missing", detail))
        else:
            await self._asgi(scope, receive, send)

    def _covers(self, scope: Any) -> bool:
        # Frameworks differ on `post`: Django takes it for POST. What any of them would run needs its key.
        return scope["type"] == "http" and scope["method"].upper() in self._methods and fnmatchcase(scope["path"], self._paths)

    async def _served(self, scope: Any, receive: Receive, send: Send, given: str) -> None:
        body = await self._body(receive)
        if isinstance(body, Response):
            await answered(send, body)
            return
        if body is None:
            return  # the client disconnected before its request was complete
        user = "" if self._user is None else self._user(scope)
        key = self._key(user, given)
        if isinstance(key, Response):
            await answered(send, key)
            return
        keys = self._keys()
        try:
            begun = await aacquire(keys, key, self._fingerprint(scope, body, has_user=user != ""), self._keep, None)
        except KeyBusy as busy:
            await answered(send, _outstanding(busy))
        except KeyConflict:
            detail = "This Idempotency-Key was used for another request. A new request needs a new key."
            if self._request is None:
                detail += " Method, path, query, content type, body and caller are compared."
            await answered(send, problem(422, "Idempotency-Key is already used", detail))
        except KeyFailed:
            detail = "The first request with this Idempotency-Key failed permanently. Send a new key to start again."
            await answered(send, problem(409, "The request has failed", detail))
        else:
            if begun.outcome == "completed":
                await _replayed(send, begun.response)
            else:
                await self._shielded(scope, body, receive, send, Hold(keys, key, begun, self._keep, self._frees))

    def _key(self, user: object, given: str) -> Ident | Response:
        """The key of this caller, or the response that says why there is none."""
        if user is None or isinstance(user, bool):
            warnings.warn(
                f"idempotency: user= returned {user!r}; return a text that identifies the caller, or '' for an anonymous one",
                RuntimeWarning,
                stacklevel=2,
            )
            detail = "An Idempotency-Key belongs to a user, and this request has none. Authenticate, then retry."
            return problem(401, "The user of this Idempotency-Key is unknown", detail)
        try:
            return Ident.of(Key(self._domain, str(user), given, "request"))
        except ValueError:
            detail = "The user of this request cannot be part of a key, because it has control characters or is too long."
            return problem(400, "The user of this Idempotency-Key is not valid", detail)

    async def _shielded(self, scope: Any, body: bytes, receive: Receive, send: Send, hold: Hold) -> None:
        """Run the application to its end, also if the client disconnects or the server cancels the request.

        A request that stops half way would free its key, and a retry would carry it out a second time.
        """
        connection = _Connection(body, receive, send)
        task = asyncio.get_running_loop().create_task(self._first(scope, connection, hold))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                connection.abandon()
                task.add_done_callback(_report)
            raise

    async def _first(self, scope: Any, connection: _Connection, hold: Hold) -> None:
        keys = self._keys()

        async def finished(response: Response) -> None:
            if response.status in self._free_on:
                await settled(keys, hold.free)
            else:
                await settled(keys, hold.answer, response, partial(bounded, limit=keys.ledger.max_payload))
            connection.finish()  # not before: a framework that is told of the disconnect cancels even this

        capture = Capture(connection.send, finished, self._max_body)
        entered = Entered(scope_of(hold.key))
        try:
            await self._asgi(scope, connection.receive, capture)
        except BaseException as error:
            await settled(keys, hold.failed, error)
            raise
        finally:
            entered.leave()
        if not hold.settled:  # the application sent no response, or only a part of it
            await settled(keys, hold.free)

    async def _body(self, receive: Receive) -> bytes | Response | None:
        """All of it; an answer where it is too large; None where the client has gone."""
        pieces: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            piece = message.get("body", b"")
            length += len(piece)
            if length > self._max_body:
                detail = f"A request with an Idempotency-Key may have at most {self._max_body} bytes. Its whole body is compared."
                return problem(413, "The request is too large for an Idempotency-Key", detail)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def _fingerprint(self, scope: Any, body: bytes, *, has_user: bool) -> bytes | None:
        """Hash what is the same in a retry; where no user is known, what identifies the caller too."""
        who = [] if has_user else self._caller(scope)
        if self._request is not None:
            return fingerprint([repr(who), repr(fingerprint(self._request(scope, body)))])
        content_type = _header(scope, b"content-type")
        boundary = _BOUNDARY.match(content_type)
        if boundary is not None:
            # Clients choose a new boundary for each attempt: it is not part of the request.
            body = body.replace(b"--" + boundary[1], b"--")
            content_type = content_type.replace(boundary[1], b"")
        path = scope.get("raw_path") or scope["path"].encode()
        parts = [scope["method"].upper().encode(), path, scope.get("query_string", b""), content_type, *who, body]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()

    def _caller(self, scope: Any) -> list[bytes]:
        """The headers by which an application may tell its users apart, and a client certificate."""
        found = sorted(
            (name.lower(), value)
            for name, value in scope["headers"]
            if _IDENTIFYING.search(name.lower()) is not None and name.lower() not in _ANONYMOUS
        )
        if self._user is None and any(word in name for name, _ in found for word in _CREDENTIALS):
            warnings.warn(
                "idempotency: requests carry a cookie or an API key, and user= is not set; all users share one key space, in "
                "which another caller's key is rejected with 422; pass user=lambda scope: ... that returns the caller",
                RuntimeWarning,
                stacklevel=2,
            )
        certificate = ((scope.get("extensions") or {}).get("tls") or {}).get("client_cert_name")
        return [part for pair in found for part in pair] + ([] if certificate is None else [str(certificate).encode()])


def _header(scope: Any, wanted: bytes) -> bytes:
    return b",".join(value for name, value in scope["headers"] if name.lower() == wanted)


def _statuses(statuses: Collection[int]) -> frozenset[int]:
    if isinstance(statuses, (str, bytes)) or not all(isinstance(each, int) and 100 <= each <= 599 for each in statuses):
        raise ValueError(f"free_on= must be a collection of HTTP statuses, such as {{429, 503}}, not {statuses!r}")
    return frozenset(statuses)


def _report(task: asyncio.Task[None]) -> None:
    """Record the error of a request whose caller has left: the server will not see it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        emit("request_failed", {"error_class": type(error).__name__, "error": str(error)})


class _Connection:
    """The client's side of one request. Its end is withheld from the application until the response is complete, or
    `DISCONNECTED_SECONDS` have passed."""

    def __init__(self, body: bytes, receive: Receive, send: Send) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._send = send
        self._open = True
        self._finished = asyncio.Event()

    def finish(self) -> None:
        """The response is stored, or its key is free: a disconnect does no harm from here on."""
        self._finished.set()

    def abandon(self) -> None:
        """The server has cancelled the request: send nothing more."""
        self._open = False

    async def receive(self) -> Message:
        """The body, which has been read already; then the disconnect, after the response."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message: Message = await self._receive() if self._open else {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            # An application that ends with its client, such as an endless stream, ends a while later.
            with suppress(TimeoutError):
                async with asyncio.timeout(DISCONNECTED_SECONDS):
                    await self._finished.wait()
        return message

    async def send(self, message: Message) -> None:
        """Send to the client, while there is one: servers raise OSError after a disconnect."""
        if self._open:
            try:
                await self._send(message)
            except OSError:
                self._open = False


async def answered(send: Send, response: Response, /) -> None:
    """Send a whole response."""
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body or b"", "more_body": False})


async def _replayed(send: Send, stored: bytes | None) -> None:
    response = loaded(stored or b"{}")
    if response.body is None:
        detail = (
            f"The request ran, with status {response.status}. Its response was not stored, because it was too large or a file."
        )
        response = problem(409, "The response was not stored", detail)
    await answered(send, response._replace(headers=[*response.headers, REPLAYED]))


def _outstanding(busy: KeyBusy) -> Response:
    after = max(1, math.ceil((busy.retry_at - datetime.now(timezone.utc)).total_seconds()))
    detail = "A request with the same Idempotency-Key is running. Retry later to get its response."
    return problem(409, "A request is outstanding for this Idempotency-Key", detail, (b"retry-after", str(after).encode()))
