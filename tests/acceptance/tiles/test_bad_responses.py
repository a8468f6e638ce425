"""Responses that are not the provider's, and a connection that drops in the middle of a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from examples.tiles.store import TileStore
from examples.tiles.uploader import SatelliteProviderError, UploadRequest
from examples.tiles.wiring import Config, build_tile_uploader
from redrive.batch import Settings
from redrive.testing import FakeClock

FLIGHT = UploadRequest("f")
DROP = (0, b"")
"""Closes the connection without a response."""


@contextmanager
def proxy(respond: Callable[[int], tuple[int, bytes]]) -> Iterator[str]:
    """Serve `PUT` with the status and the body that `respond` returns for the number of the request."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append(self.path)
            status, body = respond(len(requests))
            if (status, body) == DROP:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (502, b"<html>Bad Gateway</html>", "502 Bad Gateway"),
        (302, b"", "302 Found"),
        (503, b"[]", "503 Service Unavailable"),
        (422, b"{}", "422 Unprocessable"),
    ],
)
def test_a_response_without_a_reason_is_a_rejection(store: TileStore, status: int, body: bytes, reason: str) -> None:
    store.add("f", [("t00", b"x")])
    with proxy(lambda _: (status, body)) as address:
        uploader = build_tile_uploader(Config(address, Settings(max_in_call_retries=0)), store)
        report = uploader.upload_pending_tiles(FLIGHT)
    assert report.items[0].reason.startswith(reason)
    assert store.statuses()["t00"] == ("pending", 1)


@pytest.mark.req("B-7")
def test_a_connection_that_drops_after_two_tiles_is_retried(store: TileStore, redrive_clock: FakeClock) -> None:
    store.add("f", [(f"t{n:02}", b"x") for n in range(12)])
    with proxy(lambda number: DROP if number == 3 else (201, b"")) as address:
        report = build_tile_uploader(Config(address, Settings()), store).upload_pending_tiles(FLIGHT)
    assert (report.outcome, report.count("acknowledged"), report.retry_count) == ("success", 12, 1)
    assert redrive_clock.slept == [2.0]
    assert set(store.statuses().values()) == {("uploaded", 0)}


@pytest.mark.req("B-7")
def test_a_connection_that_drops_in_every_pass_reports_the_rest_as_pending(store: TileStore, redrive_clock: FakeClock) -> None:
    store.add("f", [(f"t{n:02}", b"x") for n in range(12)])
    with proxy(lambda number: (201, b"") if number <= 2 else DROP) as address:
        bare = build_tile_uploader(Config(address, Settings(enabled=False)), store)
        report = bare.upload_pending_tiles(FLIGHT)
        assert (report.outcome, report.count("acknowledged"), report.count("pending")) == ("partial", 2, 10)
        with pytest.raises(SatelliteProviderError):
            bare.upload_pending_tiles(FLIGHT)
    assert set(store.statuses().values()) == {("uploaded", 0), ("pending", 0)}
