"""A local satellite provider: receives tiles over HTTP, validates them, and rejects them on request."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self


class Provider:
    """Serve `PUT /tiles/{id}`: 201 accepts a tile, 422 and 503 reject it with a reason. Context manager."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        """How often each tile was sent, with any result."""
        self.accepted: dict[str, bytes] = {}
        self.refuse: Callable[[str, int], str] = lambda _tile, _time: ""
        """Function of a tile and how often it was sent. It returns the reason to reject it, or an empty text."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def answer(self, tile_id: str, blob: bytes, sha256: str) -> tuple[int, str]:
        """Return the status and the reason for a tile."""
        self.received[tile_id] += 1
        busy = self.refuse(tile_id, self.received[tile_id])
        if busy:
            return 503, busy
        if hashlib.sha256(blob).hexdigest() != sha256:
            return 422, "checksum mismatch"
        self.accepted[tile_id] = blob
        return 201, ""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # otherwise each response takes 40 ms more

            def do_PUT(self) -> None:
                blob = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, reason = provider.answer(self.path.rpartition("/")[2], blob, self.headers.get("X-SHA256", ""))
                body = json.dumps({"reason": reason}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass  # no access log on standard error

        return Handler

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
