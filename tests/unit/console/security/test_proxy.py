"""A trusted proxy: its header names the user, and the header of others is ignored."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi.testclient import TestClient

from redrive import App
from redrive.console import Rights, TrustedProxy, asgi
from redrive.console.security.group_roles import GroupRoles
from redrive.console.security.proxy import PEER

from ..browser import HERE, PASSWORD, csrf

PROXY = TrustedProxy("X-Forwarded-User", ["10.0.0.5", "10.1.0.0/16", "fd00::/8"], role="operator")


def behind(app: App, address: str, proxy: TrustedProxy = PROXY, **options: Any) -> TestClient:
    """Return a client that connects from this address."""
    console = asgi(app, proxy=proxy, **options)
    return TestClient(console, base_url="https://ops.example", client=(address, 50_000), follow_redirects=False)


@pytest.mark.req("X-4")
@pytest.mark.parametrize("address", ["10.0.0.5", "10.1.200.3", "fd00::7", "::ffff:10.0.0.5"])
def test_the_user_of_the_proxy_acts_under_its_name(app: App, address: str) -> None:
    browser = behind(app, address)
    browser.headers["x-forwarded-user"] = "ann"
    page = browser.get("/dead")
    assert (page.status_code, ">ann<" in page.text) == (200, True)
    body = {"ids": [1], "because": "x"}
    assert browser.post("/api/dead/discard", json=body).status_code == 403, "without the CSRF token"
    headers = {"x-csrf-token": csrf(page.text)}
    assert browser.post("/api/dead/discard", json=body, headers=headers).status_code == 200
    (entry, *_) = app.ledger.audit()
    assert (entry.actor, entry.what["via"]) == ("ann", "proxy")


@pytest.mark.req("X-4")
@pytest.mark.parametrize("address", ["10.0.0.6", "127.0.0.1", "::1", "10.2.0.1", "testclient", ""])
def test_the_header_of_another_address_is_ignored_and_logged(app: App, address: str, caplog: pytest.LogCaptureFixture) -> None:
    browser = behind(app, address)
    browser.headers["x-forwarded-user"] = "ann"
    with caplog.at_level(logging.INFO, "redrive.console"):
        pages = [browser.get("/dead") for _ in range(3)]
    assert [(page.status_code, "crm.sync" in page.text) for page in pages] == [(401, False)] * 3
    assert "Open this console through the proxy that signs you in." in pages[0].text
    assert browser.get("/api/status").status_code == 401
    assert len(caplog.records) == 1, "once for an address"
    assert "X-Forwarded-User from" in caplog.text
    assert "ann" not in caplog.text


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    "headers",
    [
        [("x-forwarded-user", "ann"), ("X-Forwarded-User", "eve")],
        [("x-forwarded-user", "ann, eve")],
        [("x-forwarded-user", "redrive")],
        [("x-forwarded-user", "")],
        [("x-forwarded-user", "a" * 101)],
    ],
)
def test_several_or_invalid_names_are_rejected(app: App, headers: list[tuple[str, str]]) -> None:
    for path in ("/dead", "/api/status"):
        answer = behind(app, "10.0.0.5").get(path, headers=headers)
        assert (answer.status_code, "Sign-in failed: the proxy sent" in answer.text) == (400, True)


@pytest.mark.req("X-4")
def test_without_the_header_other_ways_in_are_left(app: App) -> None:
    browser = behind(app, "10.0.0.5", password=PASSWORD)
    assert browser.get("/dead").headers["location"] == "/login?next=%2Fdead"
    assert behind(app, "10.0.0.5").get("/dead").status_code == 401


@pytest.mark.req("X-4")
def test_groups_of_the_proxy_decide_about_the_role(app: App) -> None:
    roles: GroupRoles = {"sre": "operator", "orders": Rights(job_types={"orders.*"}), "staff": "viewer"}
    proxy = TrustedProxy("X-User", ["10.0.0.5"], groups_header="X-Groups", roles=roles, role=None)
    for groups, shown in (("staff, sre", "Discard …"), ("staff", "read-only"), ("", None), ("SRE", None)):
        page = behind(app, "10.0.0.5", proxy).get("/dead/1", headers={"x-user": "ann", "x-groups": groups})
        assert (groups, page.status_code) == (groups, 401 if shown is None else 200)
        assert shown is None or shown in page.text
    limited = behind(app, "10.0.0.5", proxy).get("/dead/1", headers={"x-user": "ann", "x-groups": "orders"})
    assert limited.status_code == 403
    several = [("x-user", "ann"), ("x-groups", "staff"), ("x-groups", "sre")]
    assert behind(app, "10.0.0.5", proxy).get("/dead/1", headers=several).status_code == 400


@pytest.mark.req("X-4")
def test_the_address_of_the_connection_counts_not_the_forwarded_one(app: App) -> None:
    """Behind a proxy whose X-Forwarded-For is trusted, the server replaces the client by the forwarded address."""
    console = asgi(app, proxy=PROXY)

    async def forged_request(scope: Any, receive: Any, send: Any) -> None:
        await console({**scope, PEER: ("203.0.113.9", 1), "client": ("10.0.0.5", 1)}, receive, send)

    client = TestClient(forged_request, base_url=HERE, follow_redirects=False)
    assert client.get("/dead", headers={"x-forwarded-user": "ann"}).status_code == 401


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"header": "X Forwarded"}, "TrustedProxy: invalid header 'X Forwarded'; use a name such as X-Forwarded-User"),
        ({"addresses": []}, "TrustedProxy: addresses= is empty"),
        ({"addresses": "10.0.0.5"}, "TrustedProxy: addresses= must be a list"),
        ({"addresses": ["10.0.0.500"]}, "TrustedProxy: invalid address '10.0.0.500'; use 10.0.0.5 or 10.0.0.0/24"),
        ({"addresses": ["10.0.0.5/8"]}, "TrustedProxy: invalid address"),
        ({"addresses": ["*"]}, "TrustedProxy: invalid address '*'"),
        ({"roles": {"sre": "operator"}}, "TrustedProxy: roles= needs groups_header="),
        ({"role": "admin"}, "TrustedProxy: invalid role 'admin'"),
        ({"groups_header": ""}, "TrustedProxy: invalid groups_header ''"),
    ],
)
def test_an_invalid_option_is_reported_at_the_start(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError)) as raised:
        TrustedProxy(**({"header": "X-User", "addresses": ["10.0.0.5"]} | options))
    assert message in str(raised.value)


def test_another_object_is_reported_at_the_start(app: App) -> None:
    with pytest.raises(TypeError, match=r"proxy= must be TrustedProxy\(...\), not str"):
        asgi(app, proxy="X-Forwarded-User")  # type: ignore[arg-type]
