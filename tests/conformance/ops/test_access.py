"""Named tokens and sessions of the console on both databases: created, checked, revoked, audited."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from redrive.console import asgi
from redrive.errors import NotAllowed
from redrive.ledger import Ledger, NewJob
from redrive.ops import Operator
from redrive.ops.sign_in import sessions
from redrive.ops.sign_in.sessions import AccessStore
from redrive.ops.sign_in.tokens import PREFIX

PASSWORD = "correct horse"
HERE = "http://127.0.0.1:8321"


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "FRESH_SECONDS", 0.0)


def client(ledger: Ledger, viewer_password: str | None = None) -> TestClient:
    console = asgi(ledger, password=PASSWORD, viewer_password=viewer_password)
    return TestClient(console, base_url=HERE, follow_redirects=False)


@pytest.mark.req("X-4")
def test_a_named_token_acts_within_its_rights_until_it_is_revoked_or_expires(ledger: Ledger) -> None:
    for kind in ("orders.sync", "billing"):
        ledger.submit(NewJob(kind, f"shop:ann:{kind}:sync:v1"))
    ann = Operator(ledger, actor="ann")
    later = ledger.now() + timedelta(days=90)
    made = ann.tokens.create("ci", acts={"cancel"}, job_types={"orders.*"}, expires_at=later, because="deploys")
    assert made.token.startswith(PREFIX)
    with ledger.reading() as connection:
        stored = connection.exec_driver_sql("SELECT * FROM redrive_access_token").one()
    assert made.token not in repr(stored), "only its hash is stored"
    consoles = [client(ledger), client(ledger)]
    bearer = {"authorization": f"Bearer {made.token}", "redrive-actor": "somebody else"}
    body = {"ids": [1], "because": "INC-42"}
    for each in consoles:
        assert each.get("/api/jobs", headers=bearer).status_code == 200
        assert each.get("/api/jobs", headers={"authorization": f"Bearer {made.token}x"}).status_code == 401
        assert each.post("/api/jobs/cancel", json=body | {"ids": [2]}, headers=bearer).status_code == 403
        assert each.post("/api/dead/discard", json=body, headers=bearer).status_code == 403
    assert consoles[0].post("/api/jobs/cancel", json=body, headers=bearer).status_code == 200
    (entry, *_) = ann.audit.find(action="job.cancel")
    assert (entry.actor, entry.via) == ("ci", "token ci")
    with pytest.raises(NotAllowed, match="token 'ci': exists"):
        ann.tokens.create("ci", because="x")
    ann.tokens.revoke("ci", because="leaked")
    for each in consoles:
        assert each.get("/api/jobs", headers=bearer).status_code == 401
    with pytest.raises(NotAllowed, match="revoked already"):
        ann.tokens.revoke("ci", because="x")
    again = ann.tokens.create("ci", because="a revoked name is free")
    assert [line.state for line in ann.tokens.find()] == ["valid"]
    assert consoles[0].get("/api/jobs", headers=bearer).status_code == 401
    bearer["authorization"] = f"Bearer {again.token}"
    assert consoles[0].get("/api/jobs", headers=bearer).status_code == 200
    assert consoles[0].post("/api/jobs/cancel", json=body, headers=bearer).status_code == 403, "a viewer"
    actions = [entry.action for entry in ann.audit.find() if entry.action.startswith("token")]
    assert actions == ["token.create", "token.revoke", "token.create"]
    assert made.token not in str(ann.audit.find())
    assert ann.audit.verify().holds


@pytest.mark.req("X-4")
def test_an_expired_token_is_rejected(ledger: Ledger) -> None:
    ann = Operator(ledger, actor="ann")
    with pytest.raises(ValueError, match="has passed"):
        ann.tokens.create("ci", expires_at=ledger.now(), because="x")
    made = ann.tokens.create("ci", expires_at=ledger.now() + timedelta(days=1), because="x")
    browser = client(ledger)
    bearer = {"authorization": f"Bearer {made.token}"}
    assert browser.get("/api/jobs", headers=bearer).status_code == 200
    with ledger.connections.write.use() as session, session.transaction("test") as connection:
        connection.exec_driver_sql("UPDATE redrive_access_token SET expires_at = created_at")
    assert browser.get("/api/jobs", headers=bearer).status_code == 401
    assert [line.state for line in ann.tokens.find()] == ["expired"]


def sign_in(ledger: Ledger, name: str, password: str = PASSWORD) -> TestClient:
    browser = client(ledger, viewer_password="only looking")
    assert browser.post("/login", data={"name": name, "password": password}).status_code == 303
    return browser


def is_signed_in(browser: TestClient) -> bool:
    return browser.get("/jobs").status_code == 200


@pytest.mark.req("X-4")
def test_sessions_are_listed_and_revoked_by_user_and_by_id(ledger: Ledger) -> None:
    ann = Operator(ledger, actor="ann")
    first, second, ben = sign_in(ledger, "ann"), sign_in(ledger, "ann"), sign_in(ledger, "ben")
    listed = ann.sessions.find()
    assert sorted((each.user, each.role, each.via) for each in listed) == [
        ("ann", "operator", "password"),
        ("ann", "operator", "password"),
        ("ben", "operator", "password"),
    ]
    assert ann.sessions.revoke(user="ann", because="lost laptop") == 2
    assert [is_signed_in(each) for each in (first, second, ben)] == [False, False, True]
    (left,) = ann.sessions.find(user="ben")
    assert ann.sessions.revoke(session_id=left.id, because="x") == 1
    assert not is_signed_in(ben)
    with pytest.raises(NotAllowed, match="sessions: none of user 'ann'"):
        ann.sessions.revoke(user="ann", because="x")
    for arguments in ({}, {"user": "ann", "session_id": "a"}, {"session_id": ""}):
        with pytest.raises(ValueError, match="pass a user or an id"):
            ann.sessions.revoke(because="x", **arguments)
    assert [entry.action for entry in ann.audit.find()] == ["session.revoke"] * 2


@pytest.mark.req("X-4")
def test_a_person_signs_out_everywhere(ledger: Ledger) -> None:
    ann = [sign_in(ledger, "ann") for _ in range(3)]
    ben, viewer = sign_in(ledger, "ben"), sign_in(ledger, "ann", "only looking")

    def sign_out(browser: TestClient, **form: str) -> None:
        csrf = browser.get("/jobs").text.partition('name="csrf" content="')[2].partition('"')[0]
        assert browser.post("/logout", data={"csrf": csrf, **form}).status_code == 303

    cookie = ann[0].cookies["redrive_session"]
    sign_out(ann[0])
    ann[0].cookies.set("redrive_session", cookie)
    assert [is_signed_in(each) for each in ann] == [False, True, True], "a copy of the cookie is rejected too"
    sign_out(ann[1], everywhere="1")
    assert [is_signed_in(each) for each in (*ann, ben, viewer)] == [False, False, False, True, True]


def test_a_session_that_the_ledger_does_not_have_is_rejected(ledger: Ledger) -> None:
    browser = client(ledger)
    console = browser.app
    browser.cookies.set("redrive_session", console.access.create_session("ann", "operator"))  # type: ignore[attr-defined]
    assert not is_signed_in(browser)


def test_a_lookup_is_repeated_after_two_seconds(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(sessions, "FRESH_SECONDS", 2.0)
    monkeypatch.setattr(sessions, "monotonic", lambda: now[0])
    here, there = AccessStore(ledger), AccessStore(ledger)
    here.start("cookie", name="ann", role="operator", via="password", seconds=60)
    assert there.find_session("cookie") is not None
    here.end("cookie")
    assert here.find_session("cookie") is None, "at once in the process that ended it"
    assert there.find_session("cookie") is not None
    now[0] = 2.0
    assert there.find_session("cookie") is None
