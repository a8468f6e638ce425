"""FaultServer: an HTTP server for tests that misbehaves as told, and counts what it was asked."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

if TYPE_CHECKING:
    import ssl

Trouble: TypeAlias = Literal["reset", "close", "hang", "cut", "drip", "garbage"]
"""What goes wrong after a request was read.

reset: the connection is torn down (RST).    close: it ends without a byte.    hang: no answer, ever.
cut: half of the promised body, then the end.    drip: the body byte by byte, `pace` seconds apart.
garbage: not HTTP.
"""
BODYLESS = frozenset((204, 304))
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 seconds: closing the socket sends a RST."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One scripted answer: a status with headers and a body, or some trouble."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    trouble: Trouble | None = None
    delay: float = 0.0
    """Seconds before anything is sent."""
    pace: float = 0.05
    """Seconds between the bytes of a drip."""


Step: TypeAlias = int | Trouble | Answer
"""A status, a trouble, or an Answer in full."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    at: float
    """When it had been read, on the monotonic clock."""


class FaultServer:
    """Answers from a script, one step for each request, and repeats the last step for ever.

    with FaultServer(503, "reset", 200) as server:
        fetch(server.url)                # fails twice, then gets its 200
        assert server.count == 3

    It listens on a free port of 127.0.0.1 from `start()` (or `with`) to `close()`. Threads may share it; forked
    children may not.
    """

    def __init__(self, *script: Step, tls: ssl.SSLContext | None = None) -> None:
        self._scripts: dict[str | None, list[Answer]] = {None: _answers(script)}
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._tls = tls
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Listen; ready when this returns."""
        if self._listener is not None:
            raise RuntimeError("this FaultServer has been started already")
        self._listener = _Listener(self, self._tls)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), name="FaultServer", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening and drop every connection; no thread is left. Closing twice is fine."""
        if self._listener is not None and self._thread is not None and self._thread.is_alive():
            self._listener.shutdown()
            self._listener.drop()
            self._listener.server_close()
            self._thread.join()

    def script(self, *script: Step, path: str | None = None) -> None:
        """Answer so from now on: everything, or one path (without its query), which then has a script of its own."""
        with self._lock:
            self._scripts[path] = _answers(script)

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._listener is None:
            raise RuntimeError("this FaultServer has not been started: use `with`")
        return self._listener.server_address[1]

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request so far, in the order in which they had been read."""
        with self._lock:
            return tuple(self._requests)

    @property
    def count(self) -> int:
        """How many requests there have been."""
        return len(self._requests)

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds between one request and the next."""
        times = [request.at for request in self.requests]
        return tuple(later - earlier for earlier, later in pairwise(times))

    def next_answer(self, request: Request, /) -> Answer:
        """Keep the request and take the next step of its script."""
        with self._lock:
            self._requests.append(request)
            steps = self._scripts.get(request.path.partition("?")[0]) or self._scripts[None]
            return steps.pop(0) if len(steps) > 1 else steps[0]


@contextmanager
def refused() -> Iterator[str]:
    """The address of a port on which every connection is refused, as long as the block lasts."""
    with socket.socket() as bound:  # bound but not listening: nobody else can take the port
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def unreachable() -> Iterator[str]:
    """The address of a port on which connecting takes for ever, as long as the block lasts. Linux only."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # nobody accepts these, and there is no room for more
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


def _answers(script: tuple[Step, ...]) -> list[Answer]:
    return [_answer(step) for step in script] or [Answer()]


def _answer(step: Step) -> Answer:
    if isinstance(step, Answer):
        return step
    if isinstance(step, int) and not isinstance(step, bool) and 100 <= step <= 599:
        return Answer(step)
    if isinstance(step, str) and step in get_args(Trouble):
        return Answer(trouble=step)
    raise ValueError(f"a step is a status from 100 to 599, an Answer, or one of {', '.join(get_args(Trouble))}, not {step!r}")


class _Listener(ThreadingHTTPServer):
    """The sockets: remembers the open connections, so that closing can wake the threads that wait on them."""

    daemon_threads = False  # server_close() joins them
    request_queue_size = 128

    def __init__(self, owner: FaultServer, tls: ssl.SSLContext | None) -> None:
        self.owner = owner
        self.closing = threading.Event()
        self._tls = tls
        self._open: set[Any] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        with self._tls.wrap_socket(request.dup(), server_side=True) as secure:  # in the connection's own thread
            super().finish_request(secure, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        if request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(RESET)) == RESET:
            request.close()  # without shutdown(): that would send a FIN first
        else:
            super().shutdown_request(request)

    def drop(self) -> None:
        self.closing.set()
        with self._guard:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has gone by itself

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of a fault server leave early, and that is no news."""


class _Handler(BaseHTTPRequestHandler):
    """One connection: reads requests and does as the script says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, self._body(), time.monotonic())
            self._play(self.server.owner.next_answer(request))

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", "").lower():
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # trailers
        return body

    def _play(self, answer: Answer) -> None:
        if answer.delay:
            self.server.closing.wait(answer.delay)
        match answer.trouble:
            case "hang":
                self.server.closing.wait()
            case "reset":
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            case "garbage":
                self.wfile.write(b"\x00\x01 this is not HTTP\r\n\r\n")
            case "close":
                pass
            case _:
                self._send(answer)
        if answer.trouble not in (None, "drip"):
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in {"Date": self.date_time_string(), **answer.headers}.items():
            self.send_header(name, value)
        promised = max(2 * len(answer.body), 64) if answer.trouble == "cut" else len(answer.body)
        if answer.status not in BODYLESS:
            self.send_header("Content-Length", str(promised))
        self.end_headers()
        if self.command == "HEAD" or answer.status in BODYLESS:
            return
        if answer.trouble != "drip":
            self.wfile.write(answer.body)
            return
        for byte in answer.body:
            self.wfile.write(bytes((byte,)))
            if self.server.closing.wait(answer.pace):
                return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class has named it
        """Not to stderr: `requests` has it all."""
