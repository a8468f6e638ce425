"""Quarantined jobs run last, with no other job beside them, and are never starved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.worker.quarantine import FIRST_HOLD_SECONDS, LOOK_SECONDS, VISIT_SECONDS, Quarantine


def test_an_idle_worker_looks_once_a_second() -> None:
    quarantine = Quarantine()
    assert quarantine.should_claim(1.0, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)
    quarantine.on_empty(1.0)
    assert not quarantine.should_claim(
        1.0 + LOOK_SECONDS / 2, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True
    )
    assert quarantine.should_claim(1.0 + LOOK_SECONDS, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)


def test_quarantined_jobs_run_alone_and_follow_each_other() -> None:
    quarantine = Quarantine()
    assert quarantine.should_claim(1.0, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)
    quarantine.on_claimed(1.0)
    assert quarantine.blocks_other_claims
    assert not quarantine.should_claim(1.1, is_idle=False, has_quarantined=lambda: True, has_others=lambda: True)
    assert quarantine.should_claim(1.2, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)


def test_normal_jobs_run_after_a_visit() -> None:
    quarantine = Quarantine()
    quarantine.should_claim(1.0, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)
    quarantine.on_claimed(1.0)
    assert not quarantine.should_claim(1.0 + VISIT_SECONDS, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)
    assert not quarantine.blocks_other_claims
    assert quarantine.should_claim(
        1.0 + VISIT_SECONDS + 4 * VISIT_SECONDS, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True
    )


def test_quarantined_jobs_do_not_wait_if_no_normal_job_is_due() -> None:
    """Four jobs of 5 s: with normal jobs due they would wait 20 s each."""
    quarantine, now = Quarantine(), 1.0
    for _ in range(4):
        assert quarantine.should_claim(now, is_idle=True, has_quarantined=lambda: True, has_others=lambda: False)
        quarantine.on_claimed(now)
        assert not quarantine.should_claim(now + 1, is_idle=False, has_quarantined=lambda: True, has_others=lambda: False)
        now += 5.0


def test_an_interruption_ends_when_no_normal_job_is_due() -> None:
    quarantine = Quarantine()
    quarantine.should_claim(1.0, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)
    quarantine.on_claimed(1.0)
    assert not quarantine.should_claim(6.0, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)
    assert not quarantine.should_claim(7.0, is_idle=True, has_quarantined=lambda: True, has_others=lambda: True)
    assert quarantine.should_claim(8.0, is_idle=True, has_quarantined=lambda: True, has_others=lambda: False)


def test_a_busy_worker_holds_claims_for_a_limited_time() -> None:
    quarantine = Quarantine()
    assert not quarantine.should_claim(1.0, is_idle=False, has_quarantined=lambda: True, has_others=lambda: True)
    assert quarantine.blocks_other_claims
    assert not quarantine.should_claim(
        1.0 + FIRST_HOLD_SECONDS, is_idle=False, has_quarantined=lambda: True, has_others=lambda: True
    )
    assert not quarantine.blocks_other_claims, "normal jobs continue"


def test_claims_continue_if_no_job_is_quarantined() -> None:
    quarantine = Quarantine()
    assert not quarantine.should_claim(1.0, is_idle=False, has_quarantined=lambda: False, has_others=lambda: True)
    assert not quarantine.blocks_other_claims


@given(st.floats(1.0, 500.0))
def test_a_quarantined_job_runs_eventually(longest: float) -> None:
    """Normal jobs start whenever they may, and take `longest` seconds."""
    quarantine, now, busy_until = Quarantine(), 0.0, 0.0
    for _ in range(200_000):
        idle = now >= busy_until
        if quarantine.should_claim(now, is_idle=idle, has_quarantined=lambda: True, has_others=lambda: True):
            return
        if idle and not quarantine.blocks_other_claims:
            busy_until = now + longest
        now += 0.5
    raise AssertionError("the quarantined job starves")


@given(st.floats(1.0, 500.0))
def test_holding_claims_costs_less_than_half_of_the_time(longest: float) -> None:
    quarantine, now, held = Quarantine(), 0.0, 0.0
    while now < 20 * longest:
        assert not quarantine.should_claim(now, is_idle=False, has_quarantined=lambda: True, has_others=lambda: True)
        held += 0.25 if quarantine.blocks_other_claims else 0.0
        now += 0.25
    assert held <= 0.45 * now + FIRST_HOLD_SECONDS + 1
