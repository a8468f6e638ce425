"""A browser in front of a console, as the gate sees one: from this machine, signed in or not."""

from __future__ import annotations

import re
from typing import Any

from fastapi.testclient import TestClient

from redrive import App
from redrive.console import asgi

PASSWORD, TOKEN, LOOKING = "correct horse", "0123456789abcdef-token", "only looking"
HERE = "http://127.0.0.1:8321"


def client(app: App, **access: object) -> TestClient:
    made = asgi(app, **access)  # type: ignore[arg-type]
    return TestClient(made, base_url=HERE, client=("127.0.0.1", 50_000), follow_redirects=False, cookies=let_in(made, HERE))


def let_in(console: Any, url: str) -> dict[str, str]:
    """The cookie that opening the printed address, with its token, sets."""
    port = url.rpartition(":")[2]
    name = f"redrive_local_{port}" if port.isdecimal() else "redrive_local"
    return {name: console.access.local_cookie()}


def csrf(page: str) -> str:
    found = re.search(r'name="csrf" content="([^"]+)"', page)
    assert found is not None
    return found[1]


def signed_in(app: App, password: str = PASSWORD, **access: object) -> TestClient:
    browser = client(app, password=PASSWORD, viewer_password=LOOKING, **access)
    form = {"name": "ann", "password": password, "next": "/dead"}
    answer = browser.post("/login", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dead")
    return browser
