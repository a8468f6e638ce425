"""WSGI middleware for the Idempotency-Key header. The decisions are in `middleware.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment
from wsgiref.util import FileWrapper

from .keyed_request import KeyedRequest, RecordedStream
from .middleware import ANONYMOUS, MiddlewareOptions, MiddlewareRules, takes_arguments
from .request import RequestHead
from .response import (
    REPLAYED_HEADER,
    Headers,
    RecordedResponse,
    ResponseRecording,
    problem_response,
)

if TYPE_CHECKING:
    from .keys import Keys

Write: TypeAlias = Callable[[bytes], object]
TextHeaders: TypeAlias = list[tuple[str, str]]
ExcInfo: TypeAlias = (
    "tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]"
)

EXCHANGE = "redrive.idempotency"
"""The name in the environ under which a framework finds the `WsgiExchange` of its request."""
READ_BYTES = 64 * 1024
_IDENTITIES = ("REMOTE_USER", "SSL_CLIENT_S_DN", "HTTPS_DN")
"""What servers know about the caller: a user, and names in its certificate."""


class WsgiMiddleware:
    """A WSGI application around another one. Threads and forked children may share it."""

    def __init__(
        self,
        keys: Callable[[], Keys],
        app: WSGIApplication,
        options: MiddlewareOptions,
        /,
        *,
        begins_inside: bool = False,
    ) -> None:
        """Create the middleware.

        Args:
            keys: Returns the keys of the ledger.
            app: The application.
            options: The options.
            begins_inside: The application calls `WsgiExchange.begin`, where it knows the user.
        """
        if not takes_arguments(app, 2):
            raise TypeError(
                f"app.wsgi_idempotency wraps a WSGI application, not {app!r}; for ASGI use "
                "app.idempotency"
            )
        self._keys = keys
        self._app = app
        self.rules = MiddlewareRules(options)
        self._user = options.user
        self._request = options.request
        self._begins_inside = begins_inside

    def __call__(
        self, environ: WSGIEnvironment, start_response: StartResponse, /
    ) -> Iterable[bytes]:
        """Serve one request."""
        if not self.rules.takes_key(environ["REQUEST_METHOD"], path_of(environ)):
            return self._app(environ, start_response)
        request = request_of(environ)
        client_key = self.rules.client_key(request)
        if client_key is None:
            return self._app(environ, start_response)
        if isinstance(client_key, RecordedResponse):
            return _send_response(start_response, client_key, request)
        body = read_body(environ, self.rules)
        if isinstance(body, RecordedResponse):
            return _send_response(start_response, body, request)
        exchange = WsgiExchange(self._keys, self.rules, request, client_key, body)
        if self._begins_inside:
            environ[EXCHANGE] = exchange
        else:
            user = ANONYMOUS if self._user is None else self._user(environ)
            compared = None if self._request is None else self._request(environ, body)
            response = exchange.begin(user, compared)
            if response is not None:
                return _send_response(start_response, response, request)
        return exchange.serve(self._app, environ, start_response)


class WsgiExchange:
    """A request with a key, from the server to the application and back."""

    def __init__(
        self,
        keys: Callable[[], Keys],
        rules: MiddlewareRules,
        request: RequestHead,
        client_key: str,
        body: bytes,
    ) -> None:
        self.keyed = KeyedRequest(rules)
        self.body = body
        self._keys = keys
        self._rules = rules
        self._request = request
        self._client_key = client_key
        self._replay: RecordedResponse | None = None

    def begin(self, user: object, compared: object, /) -> RecordedResponse | None:
        """Begin the key of a user.

        Args:
            user: The caller, as `user=` returned it.
            compared: The part of the request that `request=` returned.

        Returns:
            A response that replaces the work: a stored one, or a rejection. None: the key is new.
        """
        identified = self._rules.identify(
            self._request, self.body, self._client_key, user, compared
        )
        if isinstance(identified, RecordedResponse):
            return identified
        begun = self._rules.begin(self._keys(), *identified)
        if isinstance(begun, RecordedResponse):
            if REPLAYED_HEADER in begun.headers:
                self._replay = begun
            return begun
        self.keyed.lease = begun
        return None

    def serve(
        self, app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """Call the application, and record its response."""
        environ["wsgi.input"] = BytesIO(self.body)
        environ["wsgi.input_terminated"] = True
        environ["CONTENT_LENGTH"] = str(len(self.body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        if "wsgi.file_wrapper" in environ:
            # The server would send a file by itself. It may look for its name after the call.
            environ["wsgi.file_wrapper"] = FileWrapper
        output = _Output(self.keyed, start_response)
        with self.keyed.active():
            result = app(environ, output.start)
            pieces = iter(result)
        if self._replay is not None:
            # The framework saw the stored response. It is sent as it was, without the headers
            # that the framework adds to each response.
            _close(result)
            return _send_response(start_response, self._replay, self._request)
        return output.respond(result, pieces)


class _Output:
    """The `start_response` and the `write` of one request, as the application sees them.

    They are withheld until the response is stored, or until a piece of a streamed one is sent.
    """

    def __init__(self, keyed: KeyedRequest, start_response: StartResponse) -> None:
        self._keyed = keyed
        self._recording = ResponseRecording(keyed.max_body)
        self._start_response = start_response
        self._status = ""
        self._headers: TextHeaders = []
        self._withheld: deque[bytes] = deque()
        self._write: Write | None = None
        """The `write` of the server. None: the response is withheld."""
        self._is_open = True

    def start(self, status: str, headers: TextHeaders, exc_info: ExcInfo | None = None, /) -> Write:
        """Record the status and the headers."""
        if exc_info is not None and exc_info[1] is not None:
            if self._write is not None:  # too late for an error page
                raise exc_info[1]
        elif self._recording.has_started:
            raise RuntimeError("start_response was already called; pass exc_info to replace it")
        self._status, self._headers = status, list(headers)
        self._withheld.clear()
        self._recording.start(int(status[:3]), _to_bytes(self._headers))
        return self.write

    def write(self, piece: bytes, /) -> None:
        """Record a piece, and send it unless it is withheld."""
        self._recording.add(piece)
        self._withheld.append(piece)
        if self._recording.is_withheld:
            return
        write = self._release()
        while self._withheld:
            piece = self._withheld.popleft()
            if self._is_open:
                try:
                    write(piece)
                except OSError:  # the client has disconnected, and the application goes on
                    self._is_open = False

    def _release(self) -> Write:
        if self._write is None:
            self._write = self._start_response(self._status, self._headers)
        return self._write

    def respond(self, result: Iterable[bytes], pieces: Iterator[bytes]) -> Iterable[bytes]:
        """Return the response for the server. It is stored, unless it is streamed.

        Args:
            result: The body, as the application returned it.
            pieces: The iterator of the body.
        """
        close = getattr(result, "close", None)
        stream = RecordedStream(self._keyed, self._recording, pieces, close, self._withheld)
        try:
            stream.withhold(is_whole=isinstance(result, list | tuple) or not self._is_open)
            if self._recording.has_started:
                self._release()
        except BaseException:
            stream.close()
            raise
        whole = stream.take_withheld()
        return stream if whole is None else _Pieces(whole, stream.close)


class _Pieces(list[bytes]):
    """A response that is stored. Servers compute the length of one that has a single piece."""

    def __init__(self, pieces: list[bytes], close: Callable[[], None]) -> None:
        super().__init__(pieces)
        self.close = close


def _close(result: Iterable[bytes]) -> None:
    close = getattr(result, "close", None)
    if close is not None:
        close()


# ---- requests and responses ----


def path_of(environ: WSGIEnvironment, /) -> str:
    """Return the whole path of a request."""
    return _raw_path(environ).decode("utf-8", "replace")


def _raw_path(environ: WSGIEnvironment) -> bytes:
    return _raw(environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", ""))


def _raw(text: str) -> bytes:
    """Return the bytes that the client sent. Not all servers decode them as PEP 3333 says."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def request_of(environ: WSGIEnvironment, /) -> RequestHead:
    """Return the head of a request."""
    headers = [
        (_raw(name[5:].replace("_", "-").lower()), _raw(value))
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    content_type = environ.get("CONTENT_TYPE") or ""
    if content_type:
        headers.append((b"content-type", _raw(content_type)))
    return RequestHead(
        method=environ["REQUEST_METHOD"],
        path=path_of(environ),
        raw_path=_raw_path(environ),
        query=_raw(environ.get("QUERY_STRING", "")),
        headers=headers,
        identities=tuple(
            _raw(f"{name}={environ[name]}") for name in _IDENTITIES if environ.get(name)
        ),
    )


def read_body(environ: WSGIEnvironment, rules: MiddlewareRules, /) -> bytes | RecordedResponse:
    """Return the body of a request, or the response that says why it has none."""
    length = announced_length(environ, rules)
    if isinstance(length, RecordedResponse):
        return length
    limit = rules.max_body + 1 if length is None else length
    body = _read_up_to(environ["wsgi.input"], limit)
    return check_body(body, length, rules)


def announced_length(
    environ: WSGIEnvironment, rules: MiddlewareRules, /
) -> int | RecordedResponse | None:
    """Return the length of a body that may be read, or the response to one that may not.

    None: the body ends where its stream ends.
    """
    text = (environ.get("CONTENT_LENGTH") or "").strip()
    length = int(text) if text.isdecimal() else None
    if length is None and not environ.get("wsgi.input_terminated"):
        if text or environ.get("HTTP_TRANSFER_ENCODING"):
            detail = "This server cannot read a body of unknown length. Send Content-Length."
            return problem_response(411, "The length of the request is unknown", detail)
        return 0
    return rules.too_large() if (length or 0) > rules.max_body else length


def check_body(
    body: bytes, length: int | None, rules: MiddlewareRules, /
) -> bytes | RecordedResponse:
    """Return a whole body, or the response to one that is incomplete or too large."""
    if length is not None and len(body) < length:
        # The client has disconnected, and reads no response.
        detail = "Its body is shorter than announced."
        return problem_response(400, "The request is incomplete", detail)
    return body if len(body) <= rules.max_body else rules.too_large()


def _read_up_to(stream: Any, limit: int) -> bytes:
    pieces: list[bytes] = []
    remaining = limit
    while remaining > 0:
        piece = stream.read(min(remaining, READ_BYTES))
        if not piece:
            break
        pieces.append(piece)
        remaining -= len(piece)
    return b"".join(pieces)


def _send_response(
    start_response: StartResponse, response: RecordedResponse, request: RequestHead
) -> Iterable[bytes]:
    start_response(status_line(response.status), to_text(response.headers))
    return [response.body] if response.body and request.method.upper() != "HEAD" else []


def status_line(status: int, /) -> str:
    """Return a status with its phrase, such as `409 Conflict`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def to_text(headers: Headers, /) -> TextHeaders:
    """Return headers as the text of WSGI."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _to_bytes(headers: TextHeaders) -> Headers:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
