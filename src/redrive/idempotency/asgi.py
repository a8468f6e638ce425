"""ASGI middleware for the Idempotency-Key header, after draft-ietf-httpapi-idempotency-key-header-07."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.context import Entered
from ..core.key import Key
from ..core.seconds import Seconds, lasting, whole
from ..errors import KeyBusy, KeyConflict, KeyFailed
from .capture import Capture
from .failure import freeing
from .header import BadHeader, key_in
from .hold import Hold, aacquire, scope_of, settled
from .record import Ident
from .response import REPLAYED, UNSTORED, Response, bounded, loaded, problem

if TYPE_CHECKING:
    from .keys import Keys

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGI: TypeAlias = Callable[[Any, Receive, Send], Awaitable[None]]

HEADER = b"idempotency-key"


class Middleware:
    """An ASGI application around another one. Event loops and threads may share it."""

    def __init__(
        self, keys: Callable[[], Keys], asgi: ASGI, /, *, required: bool, methods: Collection[str], paths: str, domain: str,
        user: Callable[[Mapping[str, Any]], str] | None, keep: Seconds, max_body: int,
    ) -> None:  # fmt: skip
        if not callable(asgi):
            raise TypeError(f"the middleware goes around an ASGI application, not {asgi!r}")
        if not isinstance(paths, str) or not paths.startswith(("/", "*")):
            raise ValueError(f"paths= is a pattern of whole paths, such as '/payments/*', not {paths!r}: it would match none")
        if isinstance(methods, str):
            raise TypeError(f"methods is a collection of names, not one text: ({methods!r},)")
        if user is not None and not callable(user):
            raise TypeError(f"user= is a function of the ASGI scope that says who asks, not {user!r}")
        Key(domain, "", "x", "request")  # a domain that can never be part of a key is said now
        self._keys = keys
        self._asgi = asgi
        self._required = required
        self._methods = frozenset(method.upper() for method in methods)
        self._paths = paths
        self._domain = domain
        self._user = user
        self._keep = lasting("keep", keep)
        self._max_body = whole("max_body", max_body)
        self._frees = freeing(Exception)  # an exception of the application becomes a 500, and that is not stored

    async def __call__(self, scope: Any, receive: Receive, send: Send, /) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["method"] not in self._methods or not fnmatchcase(scope["path"], self._paths):
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
            detail = "This operation requires an Idempotency-Key header, so that a retry cannot carry it out twice."
            await answered(send, problem(400, "Idempotency-Key is missing", detail))
        else:
            await self._asgi(scope, receive, send)

    async def _served(self, scope: Any, receive: Receive, send: Send, given: str) -> None:
        body = await self._body(receive)
        if isinstance(body, Response):
            await answered(send, body)
            return
        if body is None:
            return  # the client went away before it had said what it wants
        keys = self._keys()
        key = Ident.of(Key(self._domain, "" if self._user is None else str(self._user(scope)), given, "request"))
        try:
            begun = await aacquire(keys, key, self._fingerprint(scope, body), self._keep, None)
        except KeyBusy as busy:
            await answered(send, _outstanding(busy))
        except KeyConflict:
            detail = "This Idempotency-Key was used for another request. A new request needs a new key."
            await answered(send, problem(422, "Idempotency-Key is already used", detail))
        except KeyFailed:
            detail = "The first request with this Idempotency-Key failed for good. A new attempt needs a new key."
            await answered(send, problem(409, "The request has failed", detail))
        else:
            if begun.outcome == "completed":
                await _replayed(send, begun.response)
            else:
                hold = Hold(keys, key, begun, self._keep, self._frees)
                await self._first(scope, _Replay(body, receive), send, keys, hold)

    async def _first(self, scope: Any, receive: Receive, send: Send, keys: Keys, hold: Hold) -> None:
        async def finished(response: Response) -> None:
            if response.status >= 500 or response.status in UNSTORED:
                await settled(keys, hold.free)
            else:
                await settled(keys, hold.answer, response, partial(bounded, limit=keys.ledger.max_payload))

        capture = Capture(send, finished, self._max_body)
        entered = Entered(scope_of(hold.key))
        try:
            await self._asgi(scope, receive, capture)
        except BaseException as error:
            await settled(keys, hold.failed, error)
            raise
        finally:
            entered.leave()
        if not hold.settled:  # it answered nothing, or not to the end
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
                detail = (
                    f"With an Idempotency-Key a request may have {self._max_body} bytes at most, since it is compared as a whole."
                )
                return problem(413, "The request is too large for an Idempotency-Key", detail)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def _fingerprint(self, scope: Any, body: bytes) -> bytes:
        """What is the same in a retry: method, path, query, type, body; and, where nobody says who asks, the credentials."""
        found = hashlib.sha256()
        compared = [scope["method"].encode(), scope.get("raw_path") or scope["path"].encode(), scope.get("query_string", b"")]
        names = (b"content-type",) if self._user is not None else (b"content-type", b"authorization")
        compared += [b",".join(value for name, value in scope["headers"] if name.lower() == wanted) for wanted in names]
        for part in (*compared, body):
            found.update(len(part).to_bytes(8, "big"))
            found.update(part)
        return found.digest()


class _Replay:
    """The request's body, read already; behind it whatever the server says next."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def answered(send: Send, response: Response, /) -> None:
    """Send a whole response."""
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body or b"", "more_body": False})


async def _replayed(send: Send, stored: bytes | None) -> None:
    response = loaded(stored or b"{}")
    if response.body is None:
        detail = f"The request was carried out, with status {response.status}; its response was too large to be kept, or a file."
        response = problem(409, "The response was not kept", detail)
    await answered(send, response._replace(headers=[*response.headers, REPLAYED]))


def _outstanding(busy: KeyBusy) -> Response:
    after = max(1, math.ceil((busy.retry_at - datetime.now(timezone.utc)).total_seconds()))
    detail = "A request with the same Idempotency-Key is being carried out. Come back for its answer."
    return problem(409, "A request is outstanding for this Idempotency-Key", detail, (b"retry-after", str(after).encode()))
