"""The WSGI middleware around bare applications: what PEP 3333 allows servers and applications to do."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive import App, current
from redrive.errors import LeaseLost
from redrive.idempotency.record import KeyRecord
from tests.ledgers import sqlite_ledger

pytestmark = pytest.mark.req("X-3")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(sqlite_ledger(tmp_path)) as opened:
        yield opened


class Server:
    """A server that serves one request: it records what it would send."""

    def __init__(self, *, breaks_after: int | None = None) -> None:
        self.status: str | None = None
        self.headers: dict[str, str] = {}
        self.sent: list[bytes] = []
        self.starts = 0
        self._breaks_after = breaks_after

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
        if exc_info is not None and self.sent:
            raise exc_info[1]
        self.status, self.headers = status, dict(headers)
        self.starts += 1
        return self.write

    def write(self, piece: bytes) -> None:
        assert self.status is not None
        if len(self.sent) == self._breaks_after:
            raise BrokenPipeError
        self.sent.append(piece)

    def serve(self, wsgi: Any, **environ: Any) -> Server:
        """Serve a request to its end. A client that left ends the iteration, as in real servers."""
        result = wsgi(environ_of(**environ), self.start)
        try:
            for piece in result:
                self.write(piece)
        except BrokenPipeError:
            pass
        finally:
            if hasattr(result, "close"):
                result.close()
        return self

    @property
    def body(self) -> bytes:
        return b"".join(self.sent)

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"


def environ_of(body: bytes = b"{}", **more: Any) -> dict[str, Any]:
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_NAME": "shop",
        "SERVER_PORT": "80",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_IDEMPOTENCY_KEY": "k",
        "wsgi.input": io.BytesIO(body),
    }
    return {name: value for name, value in (environ | more).items() if value is not None}


def record_of(app: App) -> KeyRecord | None:
    return app.keys().find("http::k:request:v1")


def status_of(app: App) -> str | None:
    record = record_of(app)
    return None if record is None else record.status


class Body:
    """A body that reports what becomes of it."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = iter(pieces)
        self.read = 0
        self.closed = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        assert not self.closed
        piece = next(self._pieces)
        self.read += 1
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.closed += 1


def streaming(body: Iterable[bytes], *headers: tuple[str, str]) -> Any:
    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", list(headers))
        return body

    return wsgi


def test_a_list_is_stored_before_it_is_sent_and_keeps_its_length(app: App) -> None:
    seen: list[Any] = []
    wsgi = app.wsgi_idempotency(streaming([b"whole"]))
    result = wsgi(environ_of(), lambda *_: seen.append(status_of(app)) or print)  # type: ignore[func-returns-value]
    assert seen == ["completed"]
    assert len(result) == 1  # type: ignore[arg-type]  # servers compute Content-Length of one piece
    assert Server().serve(wsgi).body == b"whole"


def test_a_body_of_known_length_is_stored_before_it_is_sent(app: App) -> None:
    body = Body(b"ab", b"cd")
    seen: list[Any] = []
    wsgi = app.wsgi_idempotency(streaming(body, ("Content-Length", "4")))
    result = wsgi(environ_of(), lambda *_: seen.append((status_of(app), body.closed)) or print)  # type: ignore[func-returns-value]
    assert seen == [("completed", 0)]
    assert list(result) == [b"ab", b"cd"]
    result.close()  # type: ignore[attr-defined]
    assert body.closed == 1


def test_a_stream_is_sent_piece_by_piece(app: App) -> None:
    body = Body(b"a", b"", b"b")
    result = iter(app.wsgi_idempotency(streaming(body))(environ_of(), Server().start))
    assert next(result) == b"a"
    assert (body.read, status_of(app)) == (1, "processing")
    assert list(result) == [b"b"]
    assert status_of(app) == "completed"
    result.close()  # type: ignore[attr-defined]
    assert body.closed == 1


def test_a_server_that_closes_early_gets_the_rest_stored(app: App) -> None:
    body = Body(b"a", b"b", b"c")
    wsgi = app.wsgi_idempotency(streaming(body))
    assert Server(breaks_after=1).serve(wsgi).body == b"a"
    assert (body.read, body.closed) == (3, 1)
    again = Server().serve(wsgi)
    assert (again.body, again.replayed) == (b"abc", True)


def test_an_error_in_the_middle_of_a_stream_frees_the_key(app: App) -> None:
    body = Body(b"a", ZeroDivisionError("broken"))
    wsgi = app.wsgi_idempotency(streaming(body))
    with pytest.raises(ZeroDivisionError):
        Server().serve(wsgi)
    assert (status_of(app), body.closed) == (None, 1)


def test_an_error_without_a_client_frees_the_key(app: App) -> None:
    body = Body(b"a", b"b", ZeroDivisionError("broken"))
    with pytest.raises(ZeroDivisionError):  # for the log of the server
        Server(breaks_after=1).serve(app.wsgi_idempotency(streaming(body)))
    assert (status_of(app), body.closed) == (None, 1)


def test_a_server_that_forgets_close_lets_the_lease_expire(app: App) -> None:
    result = app.wsgi_idempotency(streaming(Body(b"a", b"b")))(environ_of(), Server().start)
    assert next(iter(result)) == b"a"
    renewed = app.keys().renewer._renew_at
    assert len(renewed) == 1
    del result
    gc.collect()
    assert renewed == {}
    assert status_of(app) == "processing"


def test_write_sends_at_once_unless_the_length_is_known(app: App) -> None:
    server = Server()
    sent_meanwhile: list[int] = []

    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        known = [("Content-Length", "3")] if environ["PATH_INFO"] == "/known" else []
        write = start_response("200 OK", known)
        write(b"a")
        sent_meanwhile.append(len(server.sent))
        write(b"b")
        return [b"c"]

    wrapped = app.wsgi_idempotency(wsgi)
    for path, expected in (("/streamed", 1), ("/known", 0)):
        server = Server()
        assert server.serve(wrapped, PATH_INFO=path, HTTP_IDEMPOTENCY_KEY=path).body == b"abc"
        assert sent_meanwhile[-1] == expected
        assert Server().serve(wrapped, PATH_INFO=path, HTTP_IDEMPOTENCY_KEY=path).body == b"abc"
    assert len(sent_meanwhile) == 2


def test_write_to_a_client_that_left_does_not_stop_the_work(app: App) -> None:
    body = Body(b"c", b"d")

    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        write = start_response("200 OK", [])
        write(b"a")
        write(b"b")
        return body

    assert Server(breaks_after=1).serve(app.wsgi_idempotency(wsgi)).body == b"a"
    assert (status_of(app), body.closed) == ("completed", 1)
    assert Server().serve(app.wsgi_idempotency(wsgi)).body == b"abcd"


def error_page(start_response: Any) -> bytes:
    try:
        raise ZeroDivisionError("broken")
    except ZeroDivisionError:
        start_response("409 Conflict", [("X-Page", "error")], sys.exc_info())
    return b"error"


def test_an_error_page_replaces_a_withheld_response(app: App) -> None:
    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Length", "10")])(b"one")
        yield b"two"
        yield error_page(start_response)

    wrapped = app.wsgi_idempotency(wsgi)
    first, again = Server().serve(wrapped), Server().serve(wrapped)
    assert (first.status, first.body, first.headers, first.starts) == ("409 Conflict", b"error", {"X-Page": "error"}, 1)
    assert (again.status, again.body, again.replayed) == ("409 Conflict", b"error", True)


def test_an_error_page_cannot_replace_a_response_that_was_sent(app: App) -> None:
    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        yield b"one"
        yield error_page(start_response)

    with pytest.raises(ZeroDivisionError):
        Server().serve(app.wsgi_idempotency(wsgi))
    assert status_of(app) is None


def test_a_second_start_without_exc_info_is_an_error(app: App) -> None:
    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        start_response("200 OK", [])
        return []

    with pytest.raises(RuntimeError, match="start_response was already called"):
        Server().serve(app.wsgi_idempotency(wsgi))
    assert status_of(app) is None


@pytest.mark.parametrize("result", [[], None, [b"body"]])
def test_an_application_that_starts_no_response_frees_the_key(app: App, result: Any) -> None:
    """A server reports the missing status, or here the missing iterable."""
    server = Server()
    wsgi = app.wsgi_idempotency(lambda environ, start_response: result)
    try:
        server.serve(wsgi)
    except (AssertionError, TypeError):
        pass
    assert (server.status, status_of(app)) == (None, None)


def test_a_generator_may_start_the_response_itself(app: App) -> None:
    keys: list[str] = []

    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        keys.append(str(current().key))
        start_response("201 Created", [])
        yield b"a"
        keys.append(str(current().key))
        yield environ["wsgi.input"].read()

    wrapped = app.wsgi_idempotency(wsgi)
    assert Server().serve(wrapped).body == b"a{}"
    again = Server().serve(wrapped)
    assert (again.status, again.body, again.replayed) == ("201 Created", b"a{}", True)
    assert keys == ["http::k:request:v1"] * 2
    assert current().key is None


def test_a_lost_lease_is_an_error_of_the_request(app: App) -> None:
    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        app.keys().release("http::k:request:v1", actor="ann", because="test", force=True)
        start_response("200 OK", [])
        return [b"late"]

    with pytest.raises(LeaseLost):
        Server().serve(app.wsgi_idempotency(wsgi))


def test_servers_send_no_files_by_themselves(app: App) -> None:
    """After the call, gunicorn asks whether the result is of the class in its environ."""

    class OfServer:
        def __init__(self, file: Any, size: int) -> None:
            raise AssertionError

    def wsgi(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [])
        return environ["wsgi.file_wrapper"](io.BytesIO(b"a file"), 2)

    environ = environ_of() | {"wsgi.file_wrapper": OfServer}
    result = app.wsgi_idempotency(wsgi)(environ, Server().start)
    assert not isinstance(result, environ["wsgi.file_wrapper"])
    assert b"".join(result) == b"a file"
    result.close()  # type: ignore[attr-defined]
    assert Server().serve(app.wsgi_idempotency(wsgi)).replayed


def test_the_server_distinguishes_known_callers(app: App) -> None:
    wsgi = app.wsgi_idempotency(streaming([b"a"]))
    for name in ("REMOTE_USER", "SSL_CLIENT_S_DN", "HTTPS_DN"):
        key = {"HTTP_IDEMPOTENCY_KEY": name}
        servers = [Server().serve(wsgi, **key, **{name: user}) for user in ("ann", "bob", "ann", None)]
        assert [(server.status or "")[:3] for server in servers] == ["200", "422", "200", "422"]


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"CONTENT_LENGTH": None}, "200 OK"),
        ({"CONTENT_LENGTH": ""}, "200 OK"),
        ({"CONTENT_LENGTH": "3"}, "400 Bad Request"),
        ({"CONTENT_LENGTH": "3", "wsgi.input_terminated": True}, "400 Bad Request"),
        ({"CONTENT_LENGTH": "two"}, "411 Length Required"),
        ({"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked"}, "411 Length Required"),
        ({"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}, "200 OK"),
        ({"CONTENT_LENGTH": "101", "wsgi.input": None}, "413 Content Too Large"),
        ({"CONTENT_LENGTH": None, "wsgi.input": io.BytesIO(b"x" * 101), "wsgi.input_terminated": True}, "413 Content Too Large"),
    ],
)
def test_bodies_are_read_as_the_server_announces_them(app: App, environ: dict[str, Any], status: str) -> None:
    server = Server().serve(app.wsgi_idempotency(streaming([b"a"]), max_body=100), **environ)
    assert server.status is not None
    assert server.status.replace("Request Entity Too Large", "Content Too Large") == status
    assert (record_of(app) is not None) is (status == "200 OK")


def test_the_whole_path_decides(app: App) -> None:
    wsgi = app.wsgi_idempotency(streaming([b"a"]), paths="/shop/é*", required=True)
    missing = {"HTTP_IDEMPOTENCY_KEY": None}
    path = "/école".encode().decode("latin-1")
    assert Server().serve(wsgi, SCRIPT_NAME="/shop", PATH_INFO=path, **missing).status == "400 Bad Request"
    assert Server().serve(wsgi, PATH_INFO=path, **missing).status == "200 OK"


def test_texts_that_are_not_latin_1_are_compared(app: App) -> None:
    """PEP 3333 does not allow them, and some servers have them."""
    wsgi = app.wsgi_idempotency(streaming([b"a"]))
    servers = [Server().serve(wsgi, QUERY_STRING=query, REMOTE_USER="žofie") for query in ("š=1", "š=1", "ž=1")]
    assert [(server.status or "")[:3] for server in servers] == ["200", "200", "422"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"methods": "POST"}, "methods must be a collection"),
        ({"methods": 5}, "methods must be a collection of names, not 5"),
        ({"user": "ann"}, "user= must be a function"),
        ({"request": "id"}, "request= must be a function"),
        ({"required": "yes"}, "required= must be True or False"),
        ({"free_on": "5xx"}, "free_on= must be a collection of HTTP statuses"),
        ({"free_on": 503}, "free_on= must be a collection of HTTP statuses"),
        ({"free_on": {1}}, "free_on= must be a collection of HTTP statuses"),
    ],
)
def test_invalid_options_are_rejected(app: App, options: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        app.wsgi_idempotency(streaming([]), **options)


def test_applications_of_the_other_kind_are_rejected(app: App) -> None:
    async def asgi(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(TypeError, match="wraps a WSGI application, .* for ASGI use app.idempotency"):
        app.wsgi_idempotency(asgi)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="wraps an ASGI application, .* for WSGI use app.wsgi_idempotency"):
        app.idempotency(streaming([]))
    for wrong in (None, "shop:app"):
        with pytest.raises(TypeError, match="wraps a WSGI application"):
            app.wsgi_idempotency(wrong)  # type: ignore[arg-type]


def test_the_ledger_is_opened_by_the_first_key(tmp_path: Path) -> None:
    file = tmp_path / "new.db"
    with App(f"sqlite:///{file}") as app:
        Server().serve(app.wsgi_idempotency(streaming([b"a"])), HTTP_IDEMPOTENCY_KEY=None)
        assert not file.exists()
