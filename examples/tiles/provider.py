"""A satellite provider on this machine: takes tiles over HTTP, checks them, and has its bad days."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self


class Provider:
    """`PUT /tiles/{id}`: 201 is yes; 422 and 503 are no, with a reason. `refuse` orders bad days. Context manager."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        """How often each tile came, whatever was said to it."""
        self.accepted: dict[str, bytes] = {}
        self.refuse: Callable[[str, int], str] = lambda _tile, _time: ""
        """Of a tile and how often it came: why it is refused today; empty where it is not."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self._server.server_port}"

    def answer(self, tile_id: str, blob: bytes, sha256: str) -> tuple[int, str]:
        """What it says to a tile."""
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
            disable_nagle_algorithm = True  # or each answer waits 40 ms for the packet before it

            def do_PUT(self) -> None:
                blob = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, reason = provider.answer(self.path.rpartition("/")[2], blob, self.headers.get("X-SHA256", ""))
                body = json.dumps({"reason": reason}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass  # it is spoken of elsewhere

        return Handler

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
