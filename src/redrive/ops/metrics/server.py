"""Exposure: a small HTTP server beside a worker, for Prometheus and for probes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..target.imported import Unreadable

if TYPE_CHECKING:
    from ...journal.sinks.prometheus import PrometheusExporter

HOST = "127.0.0.1"


class Exposure:
    """`/metrics` for a scraper, `/health` for a probe: 503 where all is not well. Runs in threads of its own.

    Opened by `with`; a port of 0 takes any that is free. Only what is counted is told, no payload and no error.
    """

    def __init__(self, exposed: PrometheusExporter, well: Callable[[], bool], /, *, host: str = HOST, port: int = 0) -> None:
        self._exposed, self._well = exposed, well
        handler = type("Handler", (_Handler,), {"exposure": self})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as problem:
            raise Unreadable(f"metrics cannot be served at {host}:{port}: {problem.strerror or problem}") from problem
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"

    def answer(self, path: str, accept: str | None, /) -> tuple[int, bytes, str]:
        """Status, body and content type."""
        if path == "/metrics":
            return (200, *self._exposed.text(accept))
        if path == "/health":
            well = self._well()
            return (200 if well else 503, json.dumps({"status": "ok" if well else "trouble"}).encode(), "application/json")
        return (404, b"there is /metrics and /health\n", "text/plain; charset=utf-8")

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="redrive-metrics", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    exposure: Exposure
    timeout = 10

    def do_GET(self) -> None:
        status, body, kind = self.exposure.answer(self.path.partition("?")[0], self.headers.get("Accept"))
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name that it has there
        """Nothing: a scrape every few seconds is no news."""
