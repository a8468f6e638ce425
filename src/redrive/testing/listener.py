"""Listener: the sockets of a FaultServer."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from .answer import Answer, Request

if TYPE_CHECKING:
    import ssl

BODYLESS = frozenset((204, 304))
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for 0 seconds: closing the socket sends a RST."""
HOP = frozenset(("connection", "content-length", "date", "keep-alive", "transfer-encoding"))
"""Headers that belong to one connection, or that this server writes itself. Not Host: signatures of requests cover it."""


class Listener(ThreadingHTTPServer):
    """Remembers the open connections, so that closing can wake the threads that wait on them."""

    daemon_threads = False  # server_close() joins them
    request_queue_size = 128

    def __init__(self, port: int, answer: Callable[[Request], Answer], upstream: str | None, tls: ssl.SSLContext | None) -> None:
        self.answer = answer
        self.upstream = upstream
        self.closing = threading.Event()
        self.accepted = 0
        self._tls = tls
        self._open: set[Any] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def open(self) -> int:
        """How many connections there are now."""
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
        """End every connection, and wake whoever waits."""
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
    server: Listener

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
        elif self.parse_request():
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, self._body(), time.monotonic())
            answer = self.server.answer(request)
            self._play(self._passed(request, answer) if answer.passed else answer)

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

    def _passed(self, request: Request, answer: Answer) -> Answer:
        """What the upstream says to this request; 502 where it says nothing."""
        from http.client import HTTPConnection, HTTPException  # noqa: PLC0415  # only for those who have an upstream
        from urllib.parse import urlsplit  # noqa: PLC0415

        base = urlsplit(self.server.upstream or "")
        connection = HTTPConnection(base.hostname or "", base.port or 80, timeout=60)
        try:
            headers = {name: value for name, value in request.headers.items() if name not in HOP}
            connection.request(request.method, base.path + request.path, request.body or None, headers)
            response = connection.getresponse()
            found = {name: value for name, value in response.getheaders() if name.lower() not in HOP}
            body = response.read()
            said = response.getheader("Content-Length") if request.method == "HEAD" else None
            length = len(body) if said is None else int(said)  # the answer to a HEAD has a length and no body
            if answer.trouble == "cut":
                body = body[: len(body) // 2]
            return replace(answer, status=response.status, headers=found, body=body, length=length)
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
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
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
        promised = max(2 * len(answer.body), 64) if answer.trouble == "cut" else len(answer.body)
        if answer.length is not None:
            promised = answer.length
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
