"""When failures are an outage: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.worker.parking import WINDOW, Parking, Recent

REASONS = st.sampled_from([None, "Timeout", "Refused", "Bad"])


@pytest.mark.req("L-7")
def test_ten_jobs_and_nine_in_ten_for_one_reason() -> None:
    parking = Parking()
    assert parking.outage(["Timeout"] * 9) is None
    assert parking.outage(["Timeout"] * 10) == "Timeout"
    assert parking.outage(["Timeout"] * 10 + ["Bad"]) == "Timeout"
    assert parking.outage(["Timeout"] * 18 + [None, None]) == "Timeout"
    assert parking.outage(["Timeout"] * 17 + [None] * 3) is None
    assert parking.outage(["Timeout"] * 10 + ["Refused"] * 10) is None


@pytest.mark.req("L-7")
def test_thresholds_can_be_set_and_parking_switched_off() -> None:
    assert Parking(least=2, share=0.5).outage(["Timeout", "Timeout", None, None]) == "Timeout"
    assert Parking.disabled().outage(["Timeout"] * 100) is None


@pytest.mark.req("L-7")
def test_a_job_that_fails_again_and_again_is_one_job() -> None:
    recent = Recent(Parking())
    assert [recent.ended(1, fence, "Timeout", 0.0) for fence in range(50)] == [None] * 50


@pytest.mark.req("L-7")
def test_what_was_long_ago_is_not_recent() -> None:
    recent = Recent(Parking())
    for job in range(9):
        assert recent.ended(job, 1, "Timeout", 0.0) is None
    assert recent.ended(9, 1, "Timeout", WINDOW + 1) is None
    assert recent.charged("Timeout") == [(9, 1)]


@pytest.mark.req("L-7")
def test_poison_beside_an_outage_is_not_counted_to_it() -> None:
    recent = Recent(Parking())
    recent.ended(0, 1, "Poison", 0.0)
    found = [recent.ended(job, 1, "Timeout", 0.0) for job in range(1, 11)]
    assert found == [None] * 9 + ["Timeout"]
    assert recent.charged("Timeout") == [(job, 1) for job in range(1, 11)]


def test_probes_are_further_and_further_apart() -> None:
    parking = Parking(first=5, longest=60)
    assert [parking.wait(probes) for probes in (0, 1, 2, 3, 4, 1000)] == [5, 10, 20, 40, 60, 60]


@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ({"least": 0}, ValueError),
        ({"share": 0}, ValueError),
        ({"share": 1.1}, ValueError),
        ({"first": 0}, ValueError),
        ({"least": "10"}, TypeError),
    ],
)
def test_nonsense_is_refused(given_: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        Parking(**given_)  # type: ignore[arg-type]


@given(st.lists(REASONS, max_size=40), st.integers(1, 12), st.floats(0.01, 1.0))
def test_an_outage_is_what_it_says(ends: list[str | None], least: int, share: float) -> None:
    found = Parking(least=least, share=share).outage(ends)
    shares = {reason: ends.count(reason) for reason in set(ends) if reason is not None}
    outages = {reason for reason, many in shares.items() if many >= least and many / len(ends) >= share - 1e-6}
    if found is None:
        assert not {reason for reason in outages if shares[reason] / len(ends) >= share + 1e-6}
    else:
        assert found in outages
        assert shares[found] == max(shares.values())


@given(st.lists(st.tuples(st.integers(0, 30), REASONS, st.floats(0, 100)), max_size=100))
def test_each_job_counts_once_by_its_last_end(events: list[tuple[int, str | None, float]]) -> None:
    recent, last, now = Recent(Parking(least=5)), dict[int, tuple[int, str | None]](), 0.0
    for fence, (job, reason, passed) in enumerate(events):
        now += passed
        recent.ended(job, fence, reason, now)
        last.pop(job, None)
        last[job] = (fence, reason)
    newest = list(last.items())[-10:]
    for reason in ("Timeout", "Refused", "Bad"):
        assert set(recent.charged(reason)) <= {(job, fence) for job, (fence, why) in newest if why == reason}
