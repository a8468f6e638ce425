"""A small HTTP server beside a worker, for Prometheus and for health probes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..project.user_code import Unreadable

if TYPE_CHECKING:
    from ...journal.sinks.prometheus import PrometheusExporter

HOST = "127.0.0.1"


class MetricsServer:
    """Serves `/metrics` for a scraper and `/health` for a probe, in its own threads.

    Start it by `with`. Port 0 takes any free port. It shows counts, and never payloads or errors.
    """

    def __init__(
        self,
        exporter: PrometheusExporter,
        is_healthy: Callable[[], bool],
        /,
        *,
        host: str = HOST,
        port: int = 0,
    ) -> None:
        self._exporter, self._is_healthy = exporter, is_healthy
        handler = type("Handler", (_Handler,), {"server_": self})
        try:
            self._server = ThreadingHTTPServer((host, port), handler)
        except OSError as problem:
            raise Unreadable(
                f"metrics cannot be served at {host}:{port}: {problem.strerror or problem}"
            ) from problem
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"

    def respond(self, path: str, accept: str | None, /) -> tuple[int, bytes, str]:
        """Return status, body and content type."""
        if path == "/metrics":
            return (200, *self._exporter.text(accept))
        if path == "/health":
            is_healthy = self._is_healthy()
            body = json.dumps({"status": "ok" if is_healthy else "trouble"}).encode()
            return (200 if is_healthy else 503, body, "application/json")
        return (404, b"there is /metrics and /health\n", "text/plain; charset=utf-8")

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="redrive-metrics", daemon=True
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_: MetricsServer
    timeout = 10

    def do_GET(self) -> None:
        status, body, kind = self.server_.respond(
            self.path.partition("?")[0], self.headers.get("Accept")
        )
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Log nothing: a scrape comes every few seconds."""
