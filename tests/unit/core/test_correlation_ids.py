"""Correlation ids are bounded in length and number, from any origin."""

from __future__ import annotations

import pytest

from redrive import correlate
from redrive.core.context import IDS, MAX_ID_CHARS, MAX_IDS, shorten_id
from redrive.http.headers import current_request_id

HUGE = "r" * 70_000


@pytest.mark.req("J-2")
def test_a_long_id_is_shortened_and_stays_distinct() -> None:
    with correlate(request_id=HUGE, tenant_id="ü" * 300):
        found = IDS.get()
        assert len(found["request_id"]) == len(found["tenant_id"]) == MAX_ID_CHARS
        assert found["request_id"].startswith("rrrr")
    assert shorten_id(HUGE) != shorten_id(HUGE + "s")
    assert shorten_id("x" * MAX_ID_CHARS) == "x" * MAX_ID_CHARS
    assert shorten_id("\ud800" * 300).startswith("\ud800"), "a lone surrogate is no reason to fail"


@pytest.mark.req("J-2")
def test_the_request_id_of_an_outgoing_call_is_bounded() -> None:
    with correlate(request_id=HUGE):
        assert len(current_request_id()) == MAX_ID_CHARS
    token = IDS.set({"request_id": HUGE})  # from a job of an older version
    try:
        assert current_request_id() == shorten_id(HUGE)
    finally:
        IDS.reset(token)


@pytest.mark.req("J-2")
def test_too_many_ids_are_rejected() -> None:
    many = {f"id_{number}": "x" for number in range(MAX_IDS)}
    with correlate(**many):
        with pytest.raises(ValueError, match=f"{MAX_IDS + 1} at once; carry at most {MAX_IDS}"), correlate(one_more="x"):
            pass
        with correlate(id_0="changed"):
            assert IDS.get()["id_0"] == "changed"
    with pytest.raises(ValueError, match="has 101 characters; use at most 100"), correlate(**{"n" * 101: "x"}):
        pass
    assert IDS.get() == {}
