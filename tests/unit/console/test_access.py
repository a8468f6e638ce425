"""Who may come in, and what they may do."""

from __future__ import annotations

import pytest

from redrive.console.access import SESSION, Access, name_of
from redrive.console.patience import FROM_ALL, FROM_ONE, WINDOW, Patience
from redrive.testing import FakeClock

PASSWORD, TOKEN = "correct horse", "0123456789abcdef-token"


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


def test_a_form_is_of_its_session_only() -> None:
    access = Access(password=PASSWORD)
    assert access.is_csrf("a", access.csrf("a"))
    assert not access.is_csrf("b", access.csrf("a"))
    assert not access.is_csrf("a", "")
    assert not access.is_csrf("a", "é")


def test_a_name_is_one_printable_line() -> None:
    assert name_of("  ann\x00\r\nSet-Cookie: x\x1b[31m ") == "annSet-Cookie: x[31m"
    assert len(name_of("x" * 1000)) == 100


def test_patience_with_wrong_passwords_ends_and_comes_back() -> None:
    clock = FakeClock()
    patience = Patience(clock=clock)
    for _ in range(FROM_ONE):
        assert patience.wait("10.0.0.1") == 0
        patience.failed("10.0.0.1")
    assert patience.wait("10.0.0.1") == pytest.approx(WINDOW)
    assert patience.wait("10.0.0.2") == 0, "others are not to blame"
    clock.advance(WINDOW + 1)
    assert patience.wait("10.0.0.1") == 0


def test_many_addresses_together_are_too_many_as_well() -> None:
    patience = Patience(clock=FakeClock())
    for number in range(FROM_ALL):
        patience.failed(f"10.0.1.{number}")
    assert patience.wait("10.9.9.9") > 0
