"""ASGI middleware for the Idempotency-Key header (draft-ietf-httpapi-idempotency-key-header-07)."""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import warnings
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.context import ActiveScope
from ..core.key import Key
from ..core.seconds import Seconds, dated_duration, whole_number
from ..errors import KeyBusy, KeyConflict, KeyFailed
from ..journal.bus import emit
from .fingerprint import fingerprint
from .lease import KeyLease, acquire_async, rule_for_freeing, scope_with_key, settle_in_thread
from .record import KeyId
from .response import (
    FREEING_STATUSES,
    REPLAYED_HEADER,
    Message,
    RecordedResponse,
    ResponseRecorder,
    Send,
    dump_within,
    problem_response,
)

if TYPE_CHECKING:
    from .keys import Keys

Receive: TypeAlias = Callable[[], Awaitable[Message]]
AsgiApp: TypeAlias = Callable[[Any, Receive, Send], Awaitable[None]]
UserOf: TypeAlias = Callable[[Mapping[str, Any]], "str | int"]
RequestOf: TypeAlias = Callable[[Mapping[str, Any], bytes], object]

HEADER = b"idempotency-key"
MAX_KEY_CHARS = 255
DISCONNECTED_SECONDS = 300.0
"""Time for which the disconnect of a client is withheld from the application."""

_QUOTED_KEY = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?:[ \t]*;.*)?')
_BARE_KEY = re.compile(rb"[\x21\x23-\x2b\x2d-\x3a\x3c-\x7e]+")
_IDENTIFYING = re.compile(
    rb"host|cookie|auth|token|key|secret|session|user|tenant|account|client.?id|customer|org|team|actor"
)
_ANONYMOUS = frozenset(
    (HEADER, b"user-agent", b"x-csrf-token", b"x-csrftoken", b"x-xsrf-token", b"origin")
)
"""Headers that match `_IDENTIFYING` by chance: they name no caller, and may differ in a retry."""
_CREDENTIALS = (b"cookie", b"key", b"token", b"session", b"secret")
_BOUNDARY = re.compile(
    rb'\s*multipart/[^;]+;.*?boundary="?([^";,]{1,70})"?', re.IGNORECASE | re.DOTALL
)


class BadHeader(ValueError):
    """The header has no valid key. The message says why."""


def key_in_header(values: list[bytes], /) -> str | None:
    """Return the key in the values of the header. None: the client sent none.

    The draft defines a quoted string of RFC 8941 (`"8e03978e"`). Most clients send it without
    quotes, which is accepted too.

    Raises:
        BadHeader: The key is not valid.
    """
    if not values:
        return None
    if len(values) > 1:
        raise BadHeader("There is more than one Idempotency-Key header.")
    value = values[0].strip(b" \t")
    quoted = _QUOTED_KEY.fullmatch(value)
    if quoted is not None:
        key = re.sub(rb"\\(.)", rb"\1", quoted[1])
    elif _BARE_KEY.fullmatch(value) is not None:
        key = value
    else:
        raise BadHeader(
            "The Idempotency-Key header must be a string of printable ASCII, such as "
            '"8e03978e-40d5-43e8".'
        )
    if not key or len(key) > MAX_KEY_CHARS:
        raise BadHeader(
            f"An idempotency key has 1 to {MAX_KEY_CHARS} characters; this one has {len(key)}."
        )
    return key.decode("ascii")


@dataclass(frozen=True, slots=True)
class MiddlewareOptions:
    """The options of the middleware, as `App.idempotency` documents them.

    Checked when it is made.
    """

    required: bool
    methods: Collection[str]
    paths: str
    domain: str
    user: UserOf | None
    keep: Seconds
    max_body: int
    request: RequestOf | None = None
    free_on: Collection[int] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.paths, str) or not self.paths.startswith(("/", "*")):
            raise ValueError(
                "paths= must be a pattern of whole paths, such as '/payments/*', not "
                f"{self.paths!r}, which matches none"
            )
        if isinstance(self.methods, str):
            raise TypeError(
                f"methods must be a collection of names, not one text; pass ({self.methods!r},)"
            )
        if self.user is not None and not callable(self.user):
            raise TypeError(
                "user= must be a function of the ASGI scope that returns the caller, not "
                f"{self.user!r}"
            )
        if self.request is not None and not callable(self.request):
            raise TypeError(
                f"request= must be a function of the ASGI scope and the body, not {self.request!r}"
            )
        Key(self.domain, "", "x", "request")  # raises for an invalid domain


class IdempotencyMiddleware:
    """An ASGI application around another one. Event loops and threads may share it."""

    def __init__(
        self, keys: Callable[[], Keys], app: AsgiApp, options: MiddlewareOptions, /
    ) -> None:
        if not callable(app):
            raise TypeError(f"the middleware must wrap an ASGI application, not {app!r}")
        self._keys = keys
        self._app = app
        self._required = options.required
        self._methods = frozenset(method.upper() for method in options.methods)
        self._paths = options.paths
        self._domain = options.domain
        self._user = options.user
        self._request = options.request
        self._keep = dated_duration("keep", options.keep)
        self._max_body = whole_number("max_body", options.max_body)
        self._free_on = FREEING_STATUSES if options.free_on is None else _statuses(options.free_on)
        # An exception of the application becomes a 500, which is not stored.
        self._frees_key = rule_for_freeing(Exception)
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Any, receive: Receive, send: Send, /) -> None:
        """Serve one connection."""
        if not self._takes_key(scope):
            await self._app(scope, receive, send)
            return
        values = [value for name, value in scope["headers"] if name.lower() == HEADER]
        try:
            client_key = key_in_header(values)
        except BadHeader as error:
            await _send_response(
                send, problem_response(400, "Idempotency-Key is not valid", str(error))
            )
            return
        if client_key is not None:
            await self._serve_with_key(scope, receive, send, client_key)
        elif self._required:
            detail = (
                "This operation requires an Idempotency-Key header, so that a retry cannot run it "
                "twice."
            )
            await _send_response(send, problem_response(400, "Idempotency-Key is missing", detail))
        else:
            await self._app(scope, receive, send)

    def _takes_key(self, scope: Any) -> bool:
        # Django runs a method `post` as POST, others do not. Every form needs the key.
        return (
            scope["type"] == "http"
            and scope["method"].upper() in self._methods
            and fnmatchcase(scope["path"], self._paths)
        )

    async def _serve_with_key(
        self, scope: Any, receive: Receive, send: Send, client_key: str
    ) -> None:
        body = await self._read_body(receive)
        if isinstance(body, RecordedResponse):
            await _send_response(send, body)
            return
        if body is None:
            return  # the client disconnected before its request was complete
        user = "" if self._user is None else self._user(scope)
        key = self._key_of(user, client_key)
        if isinstance(key, RecordedResponse):
            await _send_response(send, key)
            return
        keys = self._keys()
        request_hash = self._fingerprint(scope, body, has_user=user != "")
        try:
            result = await acquire_async(keys, key, request_hash, self._keep, None)
        except KeyBusy as busy:
            await _send_response(send, _busy_response(busy))
        except KeyConflict:
            detail = (
                "This Idempotency-Key was used for another request. A new request needs a new key."
            )
            if self._request is None:
                detail += " Method, path, query, content type, body and caller are compared."
            await _send_response(
                send, problem_response(422, "Idempotency-Key is already used", detail)
            )
        except KeyFailed:
            detail = (
                "The first request with this Idempotency-Key failed permanently. Send a new key "
                "to start again."
            )
            await _send_response(send, problem_response(409, "The request has failed", detail))
        else:
            if result.outcome == "completed":
                await _replay(send, result.response)
            else:
                lease = KeyLease(keys, key, result, self._keep, self._frees_key)
                await self._run_shielded(scope, _Connection(body, receive, send), lease)

    def _key_of(self, user: object, client_key: str) -> KeyId | RecordedResponse:
        """Return the key of a caller, or the response that says why it has none."""
        if user is None or isinstance(user, bool):
            warnings.warn(
                f"idempotency: user= returned {user!r}; return a text that identifies the caller, "
                "or '' for an anonymous one",
                RuntimeWarning,
                stacklevel=2,
            )
            detail = (
                "An Idempotency-Key belongs to a user, and this request has none. Authenticate, "
                "then retry."
            )
            return problem_response(401, "The user of this Idempotency-Key is unknown", detail)
        try:
            return KeyId.of(Key(self._domain, str(user), client_key, "request"))
        except ValueError:
            detail = (
                "The user of this request cannot be part of a key, because it has control "
                "characters or is too long."
            )
            return problem_response(400, "The user of this Idempotency-Key is not valid", detail)

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
                task.add_done_callback(_log_error)
            raise

    async def _run_app(self, scope: Any, connection: _Connection, lease: KeyLease) -> None:
        keys = self._keys()

        async def settle(response: RecordedResponse) -> None:
            if response.status in self._free_on:
                await settle_in_thread(keys, lease.free)
            else:
                dump = partial(dump_within, limit=keys.ledger.max_payload)
                await settle_in_thread(keys, lease.complete, response, dump)
            # Only now: a framework that sees the disconnect cancels even this function.
            connection.finish()

        recorder = ResponseRecorder(connection.send, settle, self._max_body)
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
            if length > self._max_body:
                detail = (
                    f"A request with an Idempotency-Key may have at most {self._max_body} bytes. "
                    "Its whole body is compared."
                )
                return problem_response(
                    413, "The request is too large for an Idempotency-Key", detail
                )
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    def _fingerprint(self, scope: Any, body: bytes, *, has_user: bool) -> bytes | None:
        """Hash the parts of a request that a retry repeats.

        Without a user, hash what identifies the caller too.
        """
        caller = [] if has_user else self._caller_parts(scope)
        if self._request is not None:
            return fingerprint([repr(caller), repr(fingerprint(self._request(scope, body)))])
        content_type = _header_value(scope, b"content-type")
        boundary = _BOUNDARY.match(content_type)
        if boundary is not None:
            # Clients choose a new boundary for each attempt.
            body = body.replace(b"--" + boundary[1], b"--")
            content_type = content_type.replace(boundary[1], b"")
        path = scope.get("raw_path") or scope["path"].encode()
        target = (scope["method"].upper().encode(), path, scope.get("query_string", b""))
        digest = hashlib.sha256()
        for part in (*target, content_type, *caller, body):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()

    def _caller_parts(self, scope: Any) -> list[bytes]:
        """Return the headers that may identify a user, and the client certificate."""
        headers = sorted(
            (name.lower(), value)
            for name, value in scope["headers"]
            if _IDENTIFYING.search(name.lower()) is not None and name.lower() not in _ANONYMOUS
        )
        if self._user is None and any(word in name for name, _ in headers for word in _CREDENTIALS):
            warnings.warn(
                "idempotency: requests carry a cookie or an API key, and user= is not set; all "
                "users share one key space, in "
                "which another caller's key is rejected with 422; pass user=lambda scope: ... "
                "that returns the caller",
                RuntimeWarning,
                stacklevel=2,
            )
        parts = [part for header in headers for part in header]
        certificate = ((scope.get("extensions") or {}).get("tls") or {}).get("client_cert_name")
        return parts if certificate is None else [*parts, str(certificate).encode()]


def _header_value(scope: Any, header: bytes) -> bytes:
    return b",".join(value for name, value in scope["headers"] if name.lower() == header)


def _statuses(statuses: Collection[int]) -> frozenset[int]:
    are_valid = not isinstance(statuses, (str, bytes)) and all(
        isinstance(status, int) and 100 <= status <= 599 for status in statuses
    )
    if not are_valid:
        raise ValueError(
            f"free_on= must be a collection of HTTP statuses, such as {{429, 503}}, not "
            f"{statuses!r}"
        )
    return frozenset(statuses)


def _log_error(task: asyncio.Task[None]) -> None:
    """Log the error of a cancelled request, which the server does not see."""
    if not task.cancelled() and (error := task.exception()) is not None:
        emit("request_failed", {"error_class": type(error).__name__, "error": str(error)})


class _Connection:
    """The connection of one request, as the application sees it.

    A disconnect is withheld until the response is complete, or for `DISCONNECTED_SECONDS`.
    """

    def __init__(self, body: bytes, receive: Receive, send: Send) -> None:
        self._body: bytes | None = body
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
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message: Message = await self._receive() if self._is_open else {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            # An application that ends with its client, such as an endless stream, ends later.
            with suppress(TimeoutError):
                async with asyncio.timeout(DISCONNECTED_SECONDS):
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


async def _replay(send: Send, stored: bytes | None) -> None:
    response = RecordedResponse.load(stored or b"{}")
    if response.body is None:
        detail = (
            f"The request ran, with status {response.status}. Its response was not stored, "
            "because it was too large or a file."
        )
        response = problem_response(409, "The response was not stored", detail)
    await _send_response(send, response._replace(headers=[*response.headers, REPLAYED_HEADER]))


def _busy_response(busy: KeyBusy) -> RecordedResponse:
    seconds = max(1, math.ceil((busy.retry_at - datetime.now(timezone.utc)).total_seconds()))
    detail = "A request with the same Idempotency-Key is running. Retry later to get its response."
    retry_after = (b"retry-after", str(seconds).encode())
    title = "A request is outstanding for this Idempotency-Key"
    return problem_response(409, title, detail, retry_after)
