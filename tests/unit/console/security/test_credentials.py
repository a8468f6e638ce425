"""Access control: passwords, tokens, sessions, roles and the login throttle."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from redrive.console.security.credentials import (
    DEVICE_SECONDS,
    MAX_WAITING_CHECKS,
    SESSION_SECONDS,
    AccessControl,
    TooManyLogins,
    name_of,
)
from redrive.ops.sign_in.hashes import COST, Password, hashed_token, is_hashed, new_token
from redrive.testing import FakeClock

PASSWORD, TOKEN = "correct horse", "0123456789abcdef-token"
HASHED = str(Password.create(PASSWORD))
SECRET = "0123456789abcdef0123456789abcdef"


def test_without_a_password_or_a_token_no_login_is_needed() -> None:
    access = AccessControl()
    assert not access.is_protected
    assert access.local_identity("ann").may_act
    assert not AccessControl(read_only=True).local_identity("ann").may_act


def test_a_password_gives_its_role_and_no_other_does() -> None:
    access = AccessControl(password=PASSWORD, viewer_password="only looking")
    assert access.is_protected
    assert access.check_password(PASSWORD) == "operator"
    assert access.check_password("only looking") == "viewer"
    assert access.check_password("correct hors") is None
    assert access.check_password("") is None


def test_read_only_makes_every_identity_a_viewer() -> None:
    access = AccessControl(password=PASSWORD, token=TOKEN, read_only=True)
    assert access.check_password(PASSWORD) == "viewer"
    identity = access.check_token(TOKEN, "")
    assert identity is not None
    assert not identity.may_act


def test_a_token_acts_in_the_name_that_comes_with_it() -> None:
    access = AccessControl(token=TOKEN)
    identity = access.check_token(TOKEN, "deploy bot\n")
    assert identity is not None
    assert (identity.name, identity.may_act) == ("deploy bot", True)
    assert access.check_token(TOKEN[:-1], "") is None
    unnamed = access.check_token(TOKEN, "")
    assert unnamed is not None
    assert unnamed.name == "token"


@pytest.mark.parametrize("options", [{"password": "short"}, {"token": "0123456789"}, {"viewer_token": ""}])
def test_a_secret_that_is_too_short_is_named(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        AccessControl(**options)  # type: ignore[arg-type]


def test_a_session_is_accepted_by_other_processes_until_it_expires() -> None:
    clock = FakeClock()
    access = AccessControl(password=PASSWORD, clock=clock)
    cookie = access.create_session("ann", "operator")
    for each in (access, AccessControl(password=PASSWORD, clock=clock)):
        identity = each.read_session(cookie)
        assert identity is not None
        assert (identity.name, identity.role, identity.by) == ("ann", "operator", "password")
    assert AccessControl(password="another one", clock=clock).read_session(cookie) is None, "a new password ends all sessions"
    clock.advance(SESSION_SECONDS + 1)
    assert access.read_session(cookie) is None


@pytest.mark.parametrize("change", [lambda c: c[:-1] + ("0" if c[-1] != "0" else "1"), lambda c: "x" + c, lambda c: c.partition(".")[0], lambda _: "", lambda _: "é.ü"])  # fmt: skip  # noqa: E501
def test_a_changed_session_is_rejected(change: object) -> None:
    access = AccessControl(password=PASSWORD)
    assert callable(change)
    assert access.read_session(change(access.create_session("ann", "viewer"))) is None


def test_hashed_passwords_and_tokens_are_accepted() -> None:
    access = AccessControl(password=HASHED, viewer_token=hashed_token(TOKEN))
    assert access.check_password(PASSWORD) == "operator"
    assert access.check_password(HASHED) is None, "the hash itself is not a password"
    identity = access.check_token(TOKEN, "prometheus")
    assert identity is not None
    assert (identity.name, identity.role) == ("prometheus", "viewer")
    assert access.check_token(hashed_token(TOKEN), "") is None
    assert HASHED.startswith("scrypt:{}:{}:{}:".format(*COST))
    assert "$" not in HASHED, "compose files and shells expand a dollar sign"
    assert Password.read(HASHED).matches(PASSWORD)
    assert is_hashed(HASHED)
    assert len(new_token()) >= 32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"password": "scrypt:16384:8:1:abc"},
            "password= is not a valid password hash; create one with `redrive serve --hash password`",
        ),
        ({"viewer_password": "sha256:" + "0" * 64}, "viewer_password= is not a valid password hash"),
        ({"password": f"scrypt:4194304:8:1:{'a' * 22}:{'b' * 43}"}, "has an unsupported cost"),
        ({"password": f"scrypt:16383:8:1:{'a' * 22}:{'b' * 43}"}, "has an unsupported cost"),
        ({"token": "sha256:" + "0" * 63}, "token= is not a valid token hash"),
        ({"secret": "too short for a secret"}, "secret= must have at least 32"),
    ],
)
def test_an_invalid_hash_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AccessControl(**options)  # type: ignore[arg-type]


def test_a_reader_of_a_hash_cannot_sign_sessions() -> None:
    cookie = AccessControl(password=HASHED).create_session("ann", "operator")
    assert AccessControl(password=HASHED).read_session(cookie) is None, "the content of a file is not enough"
    cookie = AccessControl(password=HASHED, secret=SECRET).create_session("ann", "operator")
    for other, known in ((HASHED, True), (str(Password.create("another one")), False)):
        identity = AccessControl(password=other, secret=SECRET).read_session(cookie)
        assert (identity is not None) is known, "several processes have the secret; a new password ends sessions"


def test_a_viewer_cannot_sign_or_guess_for_the_operator() -> None:
    looking = AccessControl(viewer_password="only looking")
    forged = looking.create_session("mallory", "viewer")
    identity = AccessControl(password=PASSWORD, viewer_password="only looking").read_session(forged)
    assert identity is not None
    assert identity.role == "viewer"
    assert AccessControl(password="a guess of mine", viewer_password="only looking").read_session(forged) is not None, (
        "what a viewer has does not tell whether a guess at the other password is right"
    )


def test_a_csrf_token_belongs_to_one_session() -> None:
    access = AccessControl(password=PASSWORD)
    assert access.is_csrf_token("a", access.csrf_token("a"))
    assert not access.is_csrf_token("b", access.csrf_token("a"))
    assert not access.is_csrf_token("a", "")
    assert not access.is_csrf_token("a", "é")


def test_a_name_is_one_printable_line() -> None:
    assert name_of("  ann\x00\r\nSet-Cookie: x\x1b[31m ") == "annSet-Cookie: x[31m"
    assert len(name_of("x" * 1000)) == 100
    assert name_of(" redrive ") == "", "the name is reserved for decisions of policies"


def test_a_known_browser_is_recognised_until_it_expires() -> None:
    clock = FakeClock()
    access = AccessControl(password=PASSWORD, clock=clock)
    cookie = access.create_device_cookie()
    assert access.is_known_device(cookie)
    assert AccessControl(password=PASSWORD, clock=clock).is_known_device(cookie)
    assert not AccessControl(password="another one", clock=clock).is_known_device(cookie)
    assert not AccessControl(token=TOKEN, clock=clock).is_known_device(cookie)
    for wrong in ("", "x", cookie[:-1], "9" + cookie):
        assert not access.is_known_device(wrong)
    clock.advance(DEVICE_SECONDS + 1)
    assert not access.is_known_device(cookie)


def test_attempts_that_keep_the_password_check_busy_do_not_delay_a_known_browser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = AccessControl(password=PASSWORD)
    go, busy = threading.Event(), threading.Semaphore(0)
    real = Password.matches

    def slow(self: Password, text: str) -> bool:
        if text == "a stranger's guess":
            busy.release()
            go.wait(60)
        return real(self, text)

    monkeypatch.setattr(Password, "matches", slow)
    with ThreadPoolExecutor(MAX_WAITING_CHECKS) as threads:
        strangers = [threads.submit(access.check_password, "a stranger's guess") for _ in range(MAX_WAITING_CHECKS)]
        busy.acquire()
        while access._waiting[False]._value:
            pass  # until all other clients wait
        with pytest.raises(TooManyLogins):
            access.check_password(PASSWORD)
        assert access.check_password(PASSWORD, known=True) == "operator"
        go.set()
        assert [stranger.result() for stranger in strangers] == [None] * MAX_WAITING_CHECKS
