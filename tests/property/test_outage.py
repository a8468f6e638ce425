"""The outage rule, for any history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.outage import (
    REMEMBERED,
    WINDOW,
    DetectedOutage,
    End,
    Parking,
    Recent,
    Verdict,
    find_outage,
    is_charged,
)

SIGNATURES = st.sampled_from(["Timeout", "Refused", "503"])
GROUPS = st.sampled_from([None, "ann", "bob", "cid"])
PARKINGS = st.builds(Parking, least=st.integers(1, 6), share=st.sampled_from([0.5, 0.75, 0.9, 1.0]))
KEYS = st.integers(0, 15)
VERDICTS: st.SearchStrategy[Verdict] = st.sampled_from(["success", "evidence", "charged"])
FAILURES: st.SearchStrategy[Verdict] = st.sampled_from(["evidence", "charged"])


@st.composite
def histories(draw: st.DrawFn, verdicts: st.SearchStrategy[Verdict] = VERDICTS) -> list[End]:
    """Outcomes of one scope, oldest first."""
    at, ends = 0.0, []
    for mark in range(draw(st.integers(0, 60))):
        at += draw(st.sampled_from([0.0, 1.0, 30.0, 200.0]))
        verdict = draw(verdicts)
        ends.append(End(draw(KEYS), verdict, draw(SIGNATURES), draw(GROUPS), at, (mark,)))
    return ends


@pytest.mark.req("L-7")
@given(histories(), PARKINGS)
def test_permanent_and_unknown_errors_alone_are_never_an_outage(ends: list[End], parking: Parking) -> None:
    assert find_outage([end._replace(verdict="charged") for end in ends], parking) is None


@pytest.mark.req("L-7")
@given(histories(), PARKINGS)
def test_permanent_and_unknown_errors_count_neither_for_nor_against(ends: list[End], parking: Parking) -> None:
    now = max((end.at for end in ends), default=0.0)
    groups = {end.group for end in ends if end.group is not None and end.at >= now - WINDOW}
    others = [end for end in ends if end.verdict != "charged"]
    assert find_outage(ends, parking, now=now) == find_outage(others, parking, now=now, groups=groups)


@pytest.mark.req("L-7")
@given(st.lists(st.booleans(), max_size=40), PARKINGS)
def test_more_successes_than_the_share_allows_are_never_an_outage(good: list[bool], parking: Parking) -> None:
    ends = [End(key, "success" if ok else "evidence", "503", at=key) for key, ok in enumerate(good)]
    recent = good[-2 * parking.least :]
    if recent and sum(recent) / len(recent) > 1 - parking.share + 1e-6:
        assert find_outage(ends, parking) is None


@pytest.mark.req("L-7")
@given(histories(FAILURES), histories(), PARKINGS)
def test_one_customer_alone_is_never_an_outage_beside_others(bad: list[End], other: list[End], parking: Parking) -> None:
    mine = [end._replace(group="ann") for end in bad]
    theirs = [
        end._replace(key=("bob", end.key), group="bob", verdict="success" if end.verdict == "evidence" else end.verdict)
        for end in other
    ]
    ends = sorted([*mine, *theirs], key=lambda end: end.at)
    now = max((end.at for end in ends), default=0.0)
    if any(end.at >= now - WINDOW for end in theirs):
        assert find_outage(ends, parking, now=now) is None
    assert find_outage(mine, parking, now=now, groups=["ann", "bob"]) is None


@pytest.mark.req("L-7")
@given(histories(), PARKINGS)
def test_an_outage_has_enough_distinct_keys_and_refunds_only_failures(ends: list[End], parking: Parking) -> None:
    outage = find_outage(ends, parking)
    if outage is None:
        return
    failed = {end.attempts[0] for end in ends if end.verdict == "evidence"}
    returned = [mark for end in outage.ends for mark in end.attempts]
    assert len(set(outage.keys)) == len(outage.keys) >= parking.least
    assert len(set(returned)) == len(returned)
    assert set(returned) <= failed, "each failed attempt is given back once, and no other"
    assert outage.signature in {end.signature for end in outage.ends}


@pytest.mark.req("L-7")
@given(histories(), PARKINGS)
def test_disabled_detection_never_reports_an_outage(ends: list[End], parking: Parking) -> None:
    off = Parking(least=parking.least, share=parking.share, enabled=False)
    assert find_outage(ends, off) is None


@pytest.mark.req("L-7")
@given(histories(), PARKINGS)
def test_a_bounded_memory_decides_as_the_whole_history_does(ends: list[End], parking: Parking) -> None:
    recent = Recent(parking)
    story: list[End] = []
    for number, end in enumerate(ends):
        story.append(end._replace(at=end.at + number / 1000))  # no two at the same time
        found = recent.add(story[-1])
        if end.verdict == "evidence":
            outage = find_outage(story, parking, now=story[-1].at)
            assert (None if found is None else (found.signature, _without_since(found))) == (
                None if outage is None else (outage.signature, _without_since(outage))
            )


def _without_since(outage: DetectedOutage) -> list[End]:
    return [end._replace(since=None) for end in outage.ends]


@pytest.mark.req("L-7")
@given(
    st.lists(st.tuples(VERDICTS, st.booleans(), st.integers(0, 3)), max_size=80),
    st.integers(1, 6),
    st.integers(0, 8),
)
def test_attempts_of_a_key_are_bounded_under_any_sequence(
    story: list[tuple[Verdict, bool, int]], max_attempts: int, uncharged: int
) -> None:
    """For any failures, detected outages and refunded attempts."""
    parking = Parking(uncharged=uncharged)
    charged = spared = attempts = 0
    for verdict, outage, returned in story:
        if charged >= max_attempts or verdict == "success":
            break
        attempts += 1
        if is_charged(verdict, parking, outage=outage, uncharged=spared):
            charged += 1
        else:
            spared += 1
        if outage and charged < max_attempts:
            back = min(returned, charged, parking.uncharged - spared)
            charged, spared = charged - back, spared + back
    assert attempts == charged + spared <= max_attempts + uncharged


def test_memory_is_bounded() -> None:
    parking = Parking(least=2, share=1.0)
    recent = Recent(parking)
    recent.add(End("good", "success", at=0.0))
    for number in range(1000):
        recent.add(End(number, "evidence", f"{number}", str(number), at=0.0, attempts=(1,)))
        recent.add(End(("good", number), "success", at=0.0))
    assert len(recent._failed) <= REMEMBERED * parking.least
    assert len(recent._succeeded) <= 2 * parking.least
    assert len(recent._places) == len(recent._failed) + len(recent._succeeded)
    assert len(recent._groups) <= 2
