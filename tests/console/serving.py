"""The console of an app, served by uvicorn in a thread: real HTTP on a real port, in the test's own process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.sync_api import BrowserContext

from redrive import App
from redrive.console import asgi
from redrive.console.server import bound

START_SECONDS = 60
LET_IN: dict[str, str] = {}
"""By address of a console without a password: the value of the cookie that lets a browser in."""


def let_in(context: BrowserContext, url: str) -> None:
    """What opening the printed address, with its token, does for a browser."""
    if url in LET_IN:
        port = url.rpartition(":")[2]
        context.add_cookies([{"name": f"redrive_local_{port}", "value": LET_IN[url], "url": url}])


@contextmanager
def served(app: App, **access: Any) -> Iterator[str]:
    """Its address, as long as the block lasts."""
    with bound("127.0.0.1", 0) as listening:
        console = asgi(app, **access)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        if not console.access.guarded:
            LET_IN[url] = console.access.local_cookie()
        config = uvicorn.Config(console, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="console")
        thread.start()
        try:
            deadline = time.monotonic() + START_SECONDS
            while not server.started and time.monotonic() < deadline and thread.is_alive():
                time.sleep(0.01)
            yield url
        finally:
            server.should_exit = True
            thread.join()
