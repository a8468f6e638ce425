"""The console of an app, served by uvicorn in a thread: real HTTP on a real port, in the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from redrive import App
from redrive.console import asgi
from redrive.console.server import bound

START_SECONDS = 60


@contextmanager
def served(app: App, **access: Any) -> Iterator[str]:
    """Its address, as long as the block lasts."""
    with bound("127.0.0.1", 0) as listening:
        config = uvicorn.Config(asgi(app, **access), log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="console")
        thread.start()
        try:
            deadline = time.monotonic() + START_SECONDS
            while not server.started and time.monotonic() < deadline and thread.is_alive():
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
