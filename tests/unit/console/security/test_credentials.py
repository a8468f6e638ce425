"""Who may come in, and what they may do."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from redrive.console.security.credentials import DEVICE, SESSION, WAITING_AT_MOST, Access, Busy, name_of
from redrive.console.security.login_throttle import MAX_WRONG, WINDOW_SECONDS, Patience, network_of
from redrive.ops.secret import COST, Password, hashed_token, is_hashed, new_token
from redrive.testing import FakeClock

PASSWORD, TOKEN = "correct horse", "0123456789abcdef-token"
HASHED = str(Password.create(PASSWORD))
SECRET = "0123456789abcdef0123456789abcdef"


def test_without_password_or_token_nobody_is_asked() -> None:
    access = Access()
    assert not access.guarded
    assert access.here("ann").may_act
    assert not Access(read_only=True).here("ann").may_act


def test_a_password_gives_its_role_and_no_other_does() -> None:
    access = Access(password=PASSWORD, viewer_password="only looking")
    assert access.guarded
    assert access.role_of(PASSWORD) == "operator"
    assert access.role_of("only looking") == "viewer"
    assert access.role_of("correct hors") is None
    assert access.role_of("") is None


def test_read_only_makes_everybody_a_viewer() -> None:
    access = Access(password=PASSWORD, token=TOKEN, read_only=True)
    assert access.role_of(PASSWORD) == "viewer"
    who = access.by_token(TOKEN, "")
    assert who is not None
    assert not who.may_act


def test_a_token_acts_in_the_name_that_comes_with_it() -> None:
    access = Access(token=TOKEN)
    who = access.by_token(TOKEN, "deploy bot\n")
    assert who is not None
    assert (who.name, who.may_act) == ("deploy bot", True)
    assert access.by_token(TOKEN[:-1], "") is None
    unnamed = access.by_token(TOKEN, "")
    assert unnamed is not None
    assert unnamed.name == "token"


@pytest.mark.parametrize("given", [{"password": "short"}, {"token": "0123456789"}, {"viewer_token": ""}])
def test_what_is_too_short_is_refused_by_its_name(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        Access(**given)  # type: ignore[arg-type]


def test_a_session_is_known_until_it_is_over_and_by_other_processes_too() -> None:
    clock = FakeClock()
    access = Access(password=PASSWORD, clock=clock)
    cookie = access.opened("ann", "operator")
    for each in (access, Access(password=PASSWORD, clock=clock)):
        who = each.session(cookie)
        assert who is not None
        assert (who.name, who.role, who.by) == ("ann", "operator", "password")
    assert Access(password="another one", clock=clock).session(cookie) is None, "a new password ends all sessions"
    clock.advance(SESSION + 1)
    assert access.session(cookie) is None


@pytest.mark.parametrize("change", [lambda c: c[:-1] + ("0" if c[-1] != "0" else "1"), lambda c: "x" + c, lambda c: c.partition(".")[0], lambda _: "", lambda _: "é.ü"])  # fmt: skip  # noqa: E501
def test_a_session_that_was_changed_is_none(change: object) -> None:
    access = Access(password=PASSWORD)
    assert callable(change)
    assert access.session(change(access.opened("ann", "viewer"))) is None


def test_hashes_do_as_well_as_what_they_are_of() -> None:
    access = Access(password=HASHED, viewer_token=hashed_token(TOKEN))
    assert access.role_of(PASSWORD) == "operator"
    assert access.role_of(HASHED) is None, "whoever reads it cannot come in by it"
    who = access.by_token(TOKEN, "prometheus")
    assert who is not None
    assert (who.name, who.role) == ("prometheus", "viewer")
    assert access.by_token(hashed_token(TOKEN), "") is None
    assert HASHED.startswith("scrypt:{}:{}:{}:".format(*COST))
    assert "$" not in HASHED, "compose files and shells would take it for theirs"
    assert Password.read(HASHED).matches(PASSWORD)
    assert is_hashed(HASHED)
    assert len(new_token()) >= 32


@pytest.mark.parametrize(
    ("given", "says"),
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
def test_what_is_no_hash_is_refused_by_its_name(given: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Access(**given)  # type: ignore[arg-type]


def test_who_reads_a_hash_can_sign_no_session() -> None:
    cookie = Access(password=HASHED).opened("ann", "operator")
    assert Access(password=HASHED).session(cookie) is None, "nothing that a file holds is enough"
    cookie = Access(password=HASHED, secret=SECRET).opened("ann", "operator")
    for other, known in ((HASHED, True), (str(Password.create("another one")), False)):
        who = Access(password=other, secret=SECRET).session(cookie)
        assert (who is not None) is known, "several processes have the secret; a new password ends sessions"


def test_one_role_learns_and_signs_nothing_of_the_other() -> None:
    looking = Access(viewer_password="only looking")
    forged = looking.opened("mallory", "viewer")
    who = Access(password=PASSWORD, viewer_password="only looking").session(forged)
    assert who is not None
    assert who.role == "viewer"
    assert Access(password="a guess of mine", viewer_password="only looking").session(forged) is not None, (
        "what a viewer has does not tell whether a guess at the other password is right"
    )


def test_a_form_is_of_its_session_only() -> None:
    access = Access(password=PASSWORD)
    assert access.is_csrf("a", access.csrf("a"))
    assert not access.is_csrf("b", access.csrf("a"))
    assert not access.is_csrf("a", "")
    assert not access.is_csrf("a", "é")


def test_a_name_is_one_printable_line() -> None:
    assert name_of("  ann\x00\r\nSet-Cookie: x\x1b[31m ") == "annSet-Cookie: x[31m"
    assert len(name_of("x" * 1000)) == 100
    assert name_of(" redrive ") == "", "else what somebody decides were taken for what policies do"


def test_patience_with_wrong_passwords_ends_and_comes_back() -> None:
    clock = FakeClock()
    patience = Patience(clock=clock)
    waits = [patience.wait("10.0.0.1") for _ in range(MAX_WRONG)]
    assert waits == [0] * MAX_WRONG, "also where none of them has ended yet"
    assert patience.wait("10.0.0.1") == pytest.approx(WINDOW_SECONDS)
    assert patience.wait("10.0.0.2") == 0, "others are not to blame"
    clock.advance(WINDOW_SECONDS + 1)
    assert patience.wait("10.0.0.1") == 0


def test_who_knows_the_password_uses_up_no_patience() -> None:
    patience = Patience(clock=FakeClock())
    for _ in range(2 * MAX_WRONG):
        assert patience.wait("10.0.0.1") == 0
        patience.well("10.0.0.1")


def test_wrong_passwords_from_many_addresses_lock_no_other_address_out() -> None:
    patience = Patience(clock=FakeClock())
    for number in range(1000):
        for _ in range(MAX_WRONG + 1):
            patience.wait(f"10.0.{number // 250}.{number % 250}")
    assert patience.wait("10.9.9.9") == 0


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_address_counts_by_its_network(host: str, network: str) -> None:
    assert network_of(host) == network


def test_a_known_browser_is_recognised_until_it_expires() -> None:
    clock = FakeClock()
    access = Access(password=PASSWORD, clock=clock)
    cookie = access.device()
    assert access.is_device(cookie)
    assert Access(password=PASSWORD, clock=clock).is_device(cookie)
    assert not Access(password="another one", clock=clock).is_device(cookie)
    assert not Access(token=TOKEN, clock=clock).is_device(cookie)
    for wrong in ("", "x", cookie[:-1], "9" + cookie):
        assert not access.is_device(wrong)
    clock.advance(DEVICE + 1)
    assert not access.is_device(cookie)


def test_strangers_who_keep_the_password_check_busy_do_not_hold_up_a_known_browser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = Access(password=PASSWORD)
    go, busy = threading.Event(), threading.Semaphore(0)
    real = Password.matches

    def slow(self: Password, password: str) -> bool:
        if password == "a stranger's guess":
            busy.release()
            go.wait(60)
        return real(self, password)

    monkeypatch.setattr(Password, "matches", slow)
    with ThreadPoolExecutor(WAITING_AT_MOST) as threads:
        strangers = [threads.submit(access.role_of, "a stranger's guess") for _ in range(WAITING_AT_MOST)]
        busy.acquire()
        while access._waiting[False]._value:
            pass  # until all of them wait
        with pytest.raises(Busy):
            access.role_of(PASSWORD)
        assert access.role_of(PASSWORD, known=True) == "operator"
        go.set()
        assert [stranger.result() for stranger in strangers] == [None] * WAITING_AT_MOST
