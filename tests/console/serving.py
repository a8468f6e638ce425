"""The console of an app, served by uvicorn in a thread of the test process."""

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
from redrive.console.server import bind

START_SECONDS = 60
LOCAL_COOKIES: dict[str, str] = {}
"""The cookie that lets a browser in, by URL of a console without a password."""


def let_in(context: BrowserContext, url: str) -> None:
    """Set the cookie that the printed URL with its token sets."""
    if url in LOCAL_COOKIES:
        port = url.rpartition(":")[2]
        context.add_cookies([{"name": f"redrive_local_{port}", "value": LOCAL_COOKIES[url], "url": url}])


@contextmanager
def serve_console(app: App, **access: Any) -> Iterator[str]:
    """Serve the console for the block, and yield its URL."""
    with bind("127.0.0.1", 0) as listening:
        console = asgi(app, **access)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        if not console.access.is_protected:
            LOCAL_COOKIES[url] = console.access.local_cookie()
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
