"""A test client on this machine, signed in or not."""

from __future__ import annotations

import re
from typing import Any

from fastapi.testclient import TestClient

from redrive import App
from redrive.console import asgi

PASSWORD, TOKEN, VIEWER_PASSWORD = "correct horse", "0123456789abcdef-token", "only looking"
HERE = "http://127.0.0.1:8321"


def client(app: App, **access: object) -> TestClient:
    console = asgi(app, **access)  # type: ignore[arg-type]
    cookies = let_in(console, HERE)
    return TestClient(console, base_url=HERE, client=("127.0.0.1", 50_000), follow_redirects=False, cookies=cookies)


def let_in(console: Any, url: str) -> dict[str, str]:
    """Return the cookie that the printed URL with its token sets."""
    port = url.rpartition(":")[2]
    name = f"redrive_local_{port}" if port.isdecimal() else "redrive_local"
    return {name: console.access.local_cookie()}


def csrf(page: str) -> str:
    match = re.search(r'name="csrf" content="([^"]+)"', page)
    assert match is not None
    return match[1]


def signed_in(app: App, password: str = PASSWORD, **access: object) -> TestClient:
    browser = client(app, password=PASSWORD, viewer_password=VIEWER_PASSWORD, **access)
    form = {"name": "ann", "password": password, "next": "/dead"}
    answer = browser.post("/login", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dead")
    return browser
