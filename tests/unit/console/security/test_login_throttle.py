"""The login throttle: wrong passwords are limited by address."""

from __future__ import annotations

import pytest

from redrive.console.pages.login import MAX_WRONG, WINDOW_SECONDS, LoginThrottle, network_of
from redrive.testing import FakeClock


def test_an_address_waits_after_too_many_wrong_passwords() -> None:
    clock = FakeClock()
    throttle = LoginThrottle(clock=clock)
    waits = [throttle.start_attempt("10.0.0.1") for _ in range(MAX_WRONG)]
    assert waits == [0] * MAX_WRONG, "attempts count before their passwords are checked"
    assert throttle.start_attempt("10.0.0.1") == pytest.approx(WINDOW_SECONDS)
    assert throttle.start_attempt("10.0.0.2") == 0, "other addresses are not affected"
    clock.advance(WINDOW_SECONDS + 1)
    assert throttle.start_attempt("10.0.0.1") == 0


def test_right_passwords_do_not_count() -> None:
    throttle = LoginThrottle(clock=FakeClock())
    for _ in range(2 * MAX_WRONG):
        assert throttle.start_attempt("10.0.0.1") == 0
        throttle.forgive("10.0.0.1")


def test_wrong_passwords_from_many_addresses_do_not_lock_out_another_address() -> None:
    throttle = LoginThrottle(clock=FakeClock())
    for number in range(1000):
        for _ in range(MAX_WRONG + 1):
            throttle.start_attempt(f"10.0.{number // 250}.{number % 250}")
    assert throttle.start_attempt("10.9.9.9") == 0


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
