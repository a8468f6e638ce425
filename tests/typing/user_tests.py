"""Tests of user code: no sleeping, no mocks."""

import pytest
import requests

from redrive import outcome
from redrive.testing import inject, instant

from .script import rates


def test_two_faults_are_survived() -> None:
    with instant() as clock, inject(rates, ConnectionError, requests.Timeout()) as injected:
        assert rates("2026-01-01")
    assert injected.calls == 3
    assert clock.slept == [0.25, 0.5]


def test_a_giveup_has_its_reason() -> None:
    with instant(), inject(rates, *[ConnectionError] * 3), pytest.raises(ConnectionError) as caught:
        rates("2026-01-01")
    tried = outcome(caught.value)
    assert tried is not None
    assert (tried.attempts, tried.reason) == (3, "attempts")
