"""FaultServer: an HTTP server for tests that fails by a script and records its requests."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl

Trouble: TypeAlias = Literal[
    "reset", "close", "hang", "half", "cut", "drip", "half-open", "garbage"
]
"""A fault after a request was read.

- reset: The connection is reset (RST).
- close: The connection is closed without a response.
- hang: The server never responds.
- half: Half of the head of the response, then the connection is closed.
- cut: Half of the announced body, then the connection is closed.
- drip: The body byte by byte, with `pace` seconds between them.
- half-open: The response. Then the connection is neither read nor closed.
- garbage: Bytes that are not HTTP.
"""
Passing: TypeAlias = Literal["pass", "lost"]
"""A step of a server with an upstream.

- pass: The response of the upstream.
- lost: The upstream does the work, and its response is lost (RST).
"""
BODYLESS_STATUSES = frozenset((204, 304))
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 seconds: closing the socket sends a RST."""
CONNECTION_HEADERS = frozenset(("connection", "content-length", "keep-alive", "transfer-encoding"))
"""Headers that this server writes itself. Not Host, because signatures of requests cover it."""
RESPONSE_HEADERS = CONNECTION_HEADERS | {"date"}
"""The same for responses. Signatures of requests may cover the Date."""
UPSTREAM_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """A scripted response of a `FaultServer`: a status, or a fault. Immutable.

    Args:
        status: HTTP status.
        headers: Headers.
        body: Body.
        trouble: A fault, such as `"reset"`, `"hang"` or `"cut"`.
        delay: Seconds before anything is sent.
        pace: Seconds between the bytes of `"drip"`.
        passed: Ask the upstream server, and use its response.
        length: Content-Length to send. None: that of the body, and twice that for `"cut"`.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    trouble: Trouble | None = None
    delay: float = 0.0
    pace: float = 0.05
    passed: bool = False
    length: int | None = None


Step: TypeAlias = int | Trouble | Passing | Answer
"""A step of a script."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a `FaultServer` received. Immutable.

    Attributes:
        method: The method.
        path: Path and query.
        headers: Headers by lower-case name.
        body: The body.
        at: When it was read, on the monotonic clock.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float


class FaultServer:
    """An HTTP server that follows a script: one step for each request. The last step repeats.

        with FaultServer(503, "reset", 200) as server:
            fetch(server.url)  # fails twice, then gets its 200
            assert server.count == 3

    It listens on a free port of 127.0.0.1 from `start()` (or `with`) to `close()`. Threads may
    share it. Forked children may not.

    Args:
        script: Steps: a status, a fault such as `"reset"`, or an `Answer`. With an upstream also
            `"pass"` and `"lost"`.
        tls: Serve HTTPS with this context.
        upstream: Address of a real server behind this one. `"pass"` returns its response. `"lost"`
            lets it do the work and loses the response. `Answer(passed=True, trouble="cut")` cuts
            it.
    """

    def __init__(
        self, *script: Step, tls: ssl.SSLContext | None = None, upstream: str | None = None
    ) -> None:
        self._upstream = upstream
        self._scripts: dict[str | None, list[Answer]] = {None: _parse_script(script, upstream)}
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._tls = tls
        self._earlier_connections = 0
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start to listen.

        Returns:
            The server.
        """
        if self._listener is not None:
            raise RuntimeError("this FaultServer has been started already")
        self._listen(0)
        return self

    def _listen(self, port: int) -> None:
        self._listener = _Listener(port, self.next_answer, self._upstream, self._tls)
        serve = self._listener.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.02,), name="FaultServer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server and drop every connection. You may close twice."""
        if self._listener is not None and self._thread is not None and self._thread.is_alive():
            self._listener.shutdown()
            self._listener.drop()
            self._listener.server_close()
            self._thread.join()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections inside a block, as if the server had been killed.

        Yields:
            Nothing.
        """
        port = self.port
        self.close()
        self._earlier_connections = self.connections
        with socket.socket() as bound:  # Bound, not listening: no other program can take the port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", port))
            yield
        self._listen(port)

    def script(self, *script: Step, path: str | None = None) -> None:
        """Set a new script.

        Args:
            script: Steps as of `FaultServer(...)`.
            path: Only for this path, without its query.
        """
        with self._lock:
            self._scripts[path] = _parse_script(script, self._upstream)

    @property
    def port(self) -> int:
        """Port of the server."""
        if self._listener is None:
            raise RuntimeError("this FaultServer has not been started: use `with`")
        return self._listener.server_address[1]

    @property
    def url(self) -> str:
        """Address of the server, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests so far, in the order in which they were read."""
        with self._lock:
            return tuple(self._requests)

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self._requests)

    @property
    def connections(self) -> int:
        """Number of connections so far."""
        return self._earlier_connections + (
            0 if self._listener is None else self._listener.accepted
        )

    @property
    def open(self) -> int:
        """Number of open connections, including those that a client forgot to close."""
        return 0 if self._listener is None else self._listener.open

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds between requests."""
        times = [request.at for request in self.requests]
        return tuple(later - earlier for earlier, later in pairwise(times))

    def next_answer(self, request: Request, /) -> Answer:
        """Record a request and return the next step of its script."""
        with self._lock:
            self._requests.append(request)
            steps = self._scripts.get(request.path.partition("?")[0]) or self._scripts[None]
            return steps.pop(0) if len(steps) > 1 else steps[0]


@contextmanager
def refused() -> Iterator[str]:
    """Return the address of a port that refuses connections inside the block.

    Yields:
        The address.
    """
    with socket.socket() as bound:  # Bound, not listening: no other program can take the port.
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def unreachable() -> Iterator[str]:
    """Return the address of a port on which connecting never ends inside the block. Linux only.

    Yields:
        The address.
    """
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # They fill the queue of connections.
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


def _parse_script(script: tuple[Step, ...], upstream: str | None) -> list[Answer]:
    """Return the answers of a script. The default is 200, or the response of the upstream."""
    answers = [_parse_step(step) for step in script] or [Answer(passed=upstream is not None)]
    if upstream is None and any(answer.passed for answer in answers):
        raise ValueError("no server to pass requests on to; pass upstream=")
    return answers


def _parse_step(step: Step) -> Answer:
    if isinstance(step, Answer):
        return step
    if isinstance(step, int) and not isinstance(step, bool) and 100 <= step <= 599:
        return Answer(step)
    if step == "pass":
        return Answer(passed=True)
    if step == "lost":
        return Answer(passed=True, trouble="reset")
    if isinstance(step, str) and step in get_args(Trouble):
        return Answer(trouble=step)
    words = ", ".join((*get_args(Trouble), *get_args(Passing)))
    raise ValueError(
        f"a step is a status from 100 to 599, an Answer, or one of {words}, not {step!r}"
    )


class _Listener(ThreadingHTTPServer):
    """The sockets of a FaultServer. It tracks open connections, so that `drop` can end them."""

    daemon_threads = False  # server_close() joins the threads
    request_queue_size = 128

    def __init__(
        self,
        port: int,
        next_answer: Callable[[Request], Answer],
        upstream: str | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.next_answer = next_answer
        self.upstream = upstream
        self.closing = threading.Event()
        self.accepted = 0
        self._tls = tls
        self._open: set[Any] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def open(self) -> int:
        """Number of open connections."""
        with self._guard:
            return len(self._open)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self.accepted += 1
            self._open.add(request)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        with self._tls.wrap_socket(request.dup(), server_side=True) as secure:
            super().finish_request(secure, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        size = len(RESET_ON_CLOSE)
        if request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, size) == RESET_ON_CLOSE:
            request.close()  # Not shutdown(), which would send a FIN first.
        else:
            super().shutdown_request(request)

    def drop(self) -> None:
        """End every connection, and wake the threads that wait."""
        self.closing.set()
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # The client has closed it.

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: clients of a fault server often disconnect early."""


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads requests and plays the script."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, self._read_body(), time.monotonic())
            answer = self.server.next_answer(request)
            self._play(self._ask_upstream(request, answer) if answer.passed else answer)

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # A trailer.
        return body

    def _ask_upstream(self, request: Request, answer: Answer) -> Answer:
        """Return the response of the upstream, or 502 if there is none."""
        base = urlsplit(self.server.upstream or "")
        connection = HTTPConnection(base.hostname or "", base.port or 80, timeout=UPSTREAM_SECONDS)
        try:
            path = base.path + request.path
            headers = _without(CONNECTION_HEADERS, request.headers.items())
            connection.request(request.method, path, request.body or None, headers)
            response = connection.getresponse()
            headers, body = _without(RESPONSE_HEADERS, response.getheaders()), response.read()
            length = len(body)
            if request.method == "HEAD":  # The response has a length and no body.
                length = int(response.getheader("Content-Length") or length)
            if answer.trouble == "cut":
                body = body[: len(body) // 2]
            return replace(
                answer, status=response.status, headers=headers, body=body, length=length
            )
        except (OSError, HTTPException):
            return replace(answer, status=502)
        finally:
            connection.close()

    def _play(self, answer: Answer) -> None:
        if answer.delay:
            self.server.closing.wait(answer.delay)
        match answer.trouble:
            case "hang":
                self.server.closing.wait()
            case "reset":
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            case "garbage":
                self.wfile.write(b"\x00\x01 this is not HTTP\r\n\r\n")
            case "half":
                self.wfile.write(f"HTTP/1.1 {answer.status} and the rest of".encode())
            case "close":
                pass
            case _:
                self._send(answer)
        if answer.trouble == "half-open":
            self.server.closing.wait()
        if answer.trouble not in (None, "drip"):
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in {"Date": self.date_time_string(), **answer.headers}.items():
            self.send_header(name, value)
        length = answer.length
        if length is None:
            is_cut = answer.trouble == "cut"
            length = max(2 * len(answer.body), 64) if is_cut else len(answer.body)
        if answer.status not in BODYLESS_STATUSES:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "HEAD" or answer.status in BODYLESS_STATUSES:
            return
        if answer.trouble != "drip":
            self.wfile.write(answer.body)
            return
        for byte in answer.body:
            self.wfile.write(bytes((byte,)))
            if self.server.closing.wait(answer.pace):
                return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # named by the base
        """Print nothing: `FaultServer.requests` has all requests."""


def _without(dropped: frozenset[str], headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in dropped}
