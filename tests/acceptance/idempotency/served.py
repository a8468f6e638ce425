"""Applications behind real servers, on real sockets: ASGI behind uvicorn, WSGI behind waitress."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

import uvicorn
import waitress.server
import waitress.wasyncore


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"


class Client:
    """A client that sends requests byte for byte."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(
        self,
        path: str,
        body: bytes | Iterator[bytes] = b"{}",
        key: str | None = None,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request. An iterator is sent in chunks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = {"content-type": "application/json", **(headers or {})}
            if key is not None:
                given["Idempotency-Key"] = key
            connection.request(method, path, body, given)  # an iterator without Content-Length is chunked
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@contextmanager
def serve_app(asgi: Any, lifespan: Literal["on", "off"] = "off") -> Iterator[Client]:
    """Serve an application until the end of the block."""
    config = uvicorn.Config(asgi, host="127.0.0.1", port=0, log_level="critical", lifespan=lifespan, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        end = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.01)
        yield Client(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def serve_wsgi(wsgi: Any) -> Iterator[Client]:
    """Serve an application with threads until the end of the block."""
    options = {"threads": 8, "outbuf_high_watermark": 65536, "clear_untrusted_proxy_headers": False}
    server = waitress.server.create_server(wsgi, host="127.0.0.1", port=0, **options)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield Client(server.socket.getsockname()[1])
    finally:
        # In the thread of the server, whose loop ends when it has no sockets. If it is awake, it may run the function, which
        # also closes the trigger, before the trigger is pulled.
        with suppress(OSError):
            server.trigger.pull_trigger(lambda: waitress.wasyncore.close_all(server._map))
        thread.join(30)
        server.task_dispatcher.shutdown()
