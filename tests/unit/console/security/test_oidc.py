"""OpenID Connect with a provider that lies, fails or is away: no request is let in."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from redrive import App
from redrive.console import OIDC, Rights, asgi
from redrive.console.security import oidc as module
from redrive.console.security.oidc import PendingSignIn

from ..browser import HERE, csrf

KEY, OTHER_KEY = (RSAKey.generate_key(2048, {"kid": "a", "use": "sig"}) for _ in range(2))
SECRET = "a-secret-of-the-console"


class Rogue(BaseHTTPRequestHandler):
    """A provider whose answers a test chooses."""

    answers: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer()

    def _answer(self) -> None:
        answer = self.answers.get(urlsplit(self.path).path, 404)
        body = b"" if isinstance(answer, int) else json.dumps(answer).encode()
        self.send_response(answer if isinstance(answer, int) else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def rogue() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Rogue)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    issuer = f"http://127.0.0.1:{server.server_address[1]}"
    Rogue.answers = {
        "/.well-known/openid-configuration": {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/auth",
            "token_endpoint": f"{issuer}/token",
            "jwks_uri": f"{issuer}/keys",
        },
        "/keys": {"keys": [KEY.as_dict(private=False)]},
    }
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def console(app: App, issuer: str, **options: Any) -> TestClient:
    oidc = OIDC(issuer, "console", SECRET, **{"role": "operator", **options})
    return TestClient(asgi(app, oidc=oidc), base_url=HERE, follow_redirects=False)


def begin(browser: TestClient, page: str = "/dead") -> dict[str, str]:
    """Start a sign-in, and return what the browser takes to the provider."""
    answer = browser.get("/login/oidc", params={"next": page})
    assert answer.status_code == 303, answer.text
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    return {name: values[0] for name, values in query.items()}


def finish(browser: TestClient, sent: dict[str, str], **claims: Any) -> Any:
    now = int(time.time())
    issuer = claims.pop("issuer")
    key, header = claims.pop("key", KEY), claims.pop("header", {"alg": "RS256", "kid": "a"})
    content = {"iss": issuer, "aud": "console", "sub": "1", "nonce": sent["nonce"], "iat": now, "exp": now + 60} | claims
    token = jwt.encode(
        header, {name: value for name, value in content.items() if value is not None}, key, algorithms=[header["alg"]]
    )
    Rogue.answers["/token"] = {"access_token": "x", "token_type": "Bearer", "id_token": token}
    return browser.get("/login/oidc/callback", params={"code": "c", "state": sent["state"]})


@pytest.mark.req("X-4")
def test_only_a_valid_identity_token_signs_a_person_in(app: App, caplog: pytest.LogCaptureFixture) -> None:
    now = int(time.time())
    with rogue() as issuer:
        browser = console(app, issuer)
        lies: list[dict[str, Any]] = [
            {"iss": "https://other.example"},
            {"iss": None},
            {"aud": "another-console"},
            {"aud": ["another-console", "console"]},
            {"aud": None},
            {"nonce": "x"},
            {"nonce": None},
            {"exp": now - 90},
            {"exp": None},
            {"iat": now + 300},
            {"sub": None},
            {"key": OTHER_KEY},
            {"key": OctKey.import_key(SECRET * 2), "header": {"alg": "HS256", "kid": "a"}},
        ]
        for lie in lies:
            sent = begin(browser)
            answer = finish(browser, sent, issuer=issuer, **lie)
            assert (lie, answer.status_code, "redrive_session" in answer.headers.get("set-cookie", "")) == (lie, 400, False)
            assert "The identity token is not valid." in answer.text
        assert browser.get("/dead").status_code == 303, "nobody was let in"
        accepted = finish(browser, begin(browser), issuer=issuer, exp=now - 30)
        assert accepted.status_code == 200, "clocks may differ by a minute"
        assert 'content="0; url=/dead"' in accepted.text
        assert browser.get("/dead").status_code == 200
    assert SECRET not in caplog.text
    assert len(caplog.records) >= len(lies)


@pytest.mark.req("X-4")
def test_an_answer_without_its_state_is_rejected(app: App) -> None:
    with rogue() as issuer:
        browser = console(app, issuer)
        sent = begin(browser)
        for state in ("", "x", sent["state"][:-1]):
            answer = browser.get("/login/oidc/callback", params={"code": "c", "state": state})
            assert (answer.status_code, "started elsewhere" in answer.text) == (400, True)
            browser.cookies.clear()
            sent = begin(browser)
        stranger = console(app, issuer)
        assert finish(stranger, sent, issuer=issuer).status_code == 400, "another browser"
        foreign = browser.get(
            "/login/oidc/callback", params={"code": "c", "state": sent["state"], "iss": "https://other.example"}
        )
        assert (foreign.status_code, "another identity provider" in foreign.text) == (400, True)
        sent = begin(browser)
        assert sent["code_challenge_method"] == "S256"
        refused = {"state": sent["state"], "error": "access_denied", "error_description": "not <you>"}
        answer = browser.get("/login/oidc/callback", params=refused)
        assert (answer.status_code, "refused the sign-in: not &lt;you&gt;" in answer.text) == (403, True)
        for broken in ("", "x", "e30=", "WzFd"):
            browser.cookies.set("redrive_oidc", broken, path="/login")
            assert browser.get("/login/oidc/callback?code=c&state=").status_code == 400


@pytest.mark.req("X-4")
@pytest.mark.parametrize("problem", ["away", "other issuer", "incomplete", "not JSON", "500", "token endpoint"])
def test_a_provider_that_fails_is_a_clear_page(app: App, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    with rogue() as issuer:
        browser = console(app, issuer)
        discovery = Rogue.answers["/.well-known/openid-configuration"]
        if problem == "token endpoint":
            sent = begin(browser)
            Rogue.answers["/token"] = 500
            answer = browser.get("/login/oidc/callback", params={"code": "c", "state": sent["state"]})
        else:
            changed: dict[str, Any] = {
                "away": 503,
                "500": 500,
                "not JSON": "x",
                "other issuer": discovery | {"issuer": "https://other.example"},
                "incomplete": {"issuer": issuer},
            }
            Rogue.answers["/.well-known/openid-configuration"] = changed[problem]
            answer = browser.get("/login/oidc")
        assert (answer.status_code, "identity provider" in answer.text.lower()) == (503, True)
        assert "Sign in again" in answer.text
        assert len(caplog.records) == 1
        assert "console: sign-in by OIDC failed" in caplog.text
    if problem == "away":
        gone = console(app, issuer)
        assert gone.get("/login/oidc").status_code == 503


@pytest.mark.req("X-4")
def test_new_keys_of_the_provider_are_read(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEY_REFRESH_SECONDS", 0.0)
    with rogue() as issuer:
        browser = console(app, issuer)
        assert finish(browser, begin(browser), issuer=issuer).status_code == 200
        newer = RSAKey.generate_key(2048, {"kid": "b", "use": "sig"})
        Rogue.answers["/keys"] = {"keys": [newer.as_dict(private=False)]}
        header = {"alg": "RS256", "kid": "b"}
        assert finish(browser, begin(browser), issuer=issuer, key=newer, header=header).status_code == 200


@pytest.mark.req("X-4")
def test_a_new_key_under_the_same_id_is_read(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEY_REFRESH_SECONDS", 0.0)
    with rogue() as issuer:
        browser = console(app, issuer)
        assert finish(browser, begin(browser), issuer=issuer).status_code == 200
        Rogue.answers["/keys"] = {"keys": [OTHER_KEY.as_dict(private=False)]}
        assert finish(browser, begin(browser), issuer=issuer, key=OTHER_KEY).status_code == 200


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    "page", ["/\t/evil.example", "/\n/evil.example", "/\t\\evil.example", "//evil.example", "https://evil.example"]
)
def test_a_sign_in_only_opens_pages_of_the_console(app: App, page: str) -> None:
    with rogue() as issuer:
        browser = console(app, issuer)
        assert 'content="0; url=/"' in finish(browser, begin(browser, page), issuer=issuer).text
        sent = begin(browser)
        forged = PendingSignIn(sent["state"], sent["nonce"], "x", page).to_cookie()
        browser.cookies.clear()
        browser.cookies.set("redrive_oidc", forged, path="/login")
        assert 'content="0; url=/"' in finish(browser, sent, issuer=issuer).text


@pytest.mark.req("X-4")
def test_an_answer_without_the_issuer_is_rejected_if_the_provider_names_it(app: App) -> None:
    with rogue() as issuer:
        Rogue.answers["/.well-known/openid-configuration"]["authorization_response_iss_parameter_supported"] = True
        browser = console(app, issuer)
        answer = finish(browser, begin(browser), issuer=issuer)
        assert (answer.status_code, "another identity provider" in answer.text) == (400, True)


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    "wrong", [{"token_endpoint": "http://login.example/token"}, {"authorization_endpoint": "javascript:alert(1)"}]
)
def test_an_address_without_https_is_a_wrong_configuration(
    app: App, wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with rogue() as issuer:
        Rogue.answers["/.well-known/openid-configuration"] |= wrong
        answer = console(app, issuer).get("/login/oidc")
        assert (answer.status_code, "The identity provider is not configured correctly." in answer.text) == (503, True)
        assert f"OIDC: invalid {next(iter(wrong))}" in caplog.text


@pytest.mark.req("X-4")
def test_groups_decide_about_role_and_rights(app: App) -> None:
    roles = {"sre": "operator", "orders": Rights(acts={"discard"}, job_types={"orders.*"}), "all": "viewer"}
    with rogue() as issuer:
        browser = console(app, issuer, roles=roles, role=None)
        cases: list[tuple[Any, int, bool]] = [
            (["all", "sre"], 200, True),
            ("all,sre", 200, True),
            (["all"], 200, False),
            ([], 403, False),
            (["SRE", 7, None], 403, False),
            (7, 403, False),
            ({"sre": False}, 403, False),
            (None, 403, False),
        ]
        for groups, status, acts in cases:
            browser.cookies.clear()
            answer = finish(browser, begin(browser), issuer=issuer, groups=groups, preferred_username="ann")
            assert (groups, answer.status_code) == (groups, status)
            if status == 403:
                assert "no access to this console. Ask for one of these groups: sre, orders, all." in answer.text
                assert browser.get("/dead").status_code == 303
            else:
                assert ("Discard …" in browser.get("/dead/1").text) == acts
        finish(browser, begin(browser), issuer=issuer, groups=["orders"], preferred_username="ann")
        token = csrf(browser.get("/jobs").text)
        answer = browser.post("/api/dead/discard", json={"ids": [1], "because": "x"}, headers={"x-csrf-token": token})
        assert (answer.status_code, "no right for the job type crm.sync" in answer.text) == (403, True)
        reserved = finish(browser, begin(browser), issuer=issuer, groups=["sre"], preferred_username="redrive")
        assert reserved.status_code == 403


@pytest.mark.req("X-4")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"issuer": "http://login.example"}, "OIDC: invalid issuer 'http://login.example'; use https"),
        ({"issuer": ""}, "OIDC: issuer= must be text and not empty"),
        ({"client_id": None}, "OIDC: client_id= must be text and not empty"),
        ({"client_secret": ""}, "OIDC: client_secret= is empty"),
        ({"scope": "profile"}, "OIDC: scope= must contain openid"),
        ({"role": "admin"}, "OIDC: invalid role 'admin'"),
        ({"roles": {"sre": "admin"}}, "OIDC: roles= has 'admin' for 'sre'; use viewer, operator or Rights"),
        ({"roles": ["sre"]}, "OIDC: roles= must be a dict"),
        ({"role": None}, "OIDC: no user would have access; pass roles="),
        ({"redirect_url": "ftp://x"}, "OIDC: invalid redirect_url"),
    ],
)
def test_an_invalid_option_is_reported_at_the_start(options: dict[str, Any], message: str) -> None:
    given = {"issuer": "https://login.example", "client_id": "console", "role": "viewer"} | options
    with pytest.raises((ValueError, TypeError)) as raised:
        OIDC(**given)
    assert message in str(raised.value)


def test_the_secret_is_not_shown(app: App) -> None:
    assert SECRET not in repr(OIDC("https://login.example", "console", SECRET, role="viewer"))
    with pytest.raises(TypeError, match=r"oidc= must be OIDC\(...\), not dict"):
        asgi(app, oidc={"issuer": "x"})  # type: ignore[arg-type]
