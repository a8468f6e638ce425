"""Histograms of durations: percentiles are at most 9.1 % off."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.ledger.stats import histogram
from redrive.ledger.stats.histogram import BUCKET_COUNT, bucket_of, from_text, merge, percentile, seconds_of, sum_texts, to_text

MAX_ERROR = 2 ** (1 / 8) - 1


@pytest.mark.req("Q-12")
@given(st.floats(min_value=64, max_value=3.6e12))
def test_a_bucket_is_at_most_nine_percent_off(micros: float) -> None:
    middle = seconds_of(bucket_of(micros)) * 1e6
    assert abs(middle - micros) / micros <= MAX_ERROR + 1e-9


@pytest.mark.parametrize(("micros", "bucket"), [(-5, 0), (0, 0), (63, 0), (64, 0), (1e30, BUCKET_COUNT - 1)])
def test_every_duration_has_a_bucket(micros: float, bucket: int) -> None:
    assert bucket_of(micros) == bucket


@pytest.mark.req("Q-12")
def test_percentiles_of_many_durations() -> None:
    draw = random.Random(1)
    durations = sorted(draw.lognormvariate(0, 2) for _ in range(10_000))
    counts = merge({bucket_of(each * 1e6): 1} for each in durations)
    for share in (0.5, 0.95, 0.99):
        exact = durations[int(share * len(durations)) - 1]
        found = percentile(counts, share)
        assert found is not None
        assert abs(found - exact) / exact <= 0.1


def test_no_durations_have_no_percentile() -> None:
    assert percentile({}, 0.5) is None


@given(st.dictionaries(st.integers(0, BUCKET_COUNT - 1), st.integers(1, 10**9)))
def test_the_stored_form_is_lossless(counts: dict[int, int]) -> None:
    assert from_text(to_text(counts)) == counts
    assert histogram.from_counts([counts.get(bucket, 0) for bucket in range(BUCKET_COUNT)]) == counts


@given(st.lists(st.dictionaries(st.integers(0, BUCKET_COUNT - 1), st.integers(1, 10**9)), max_size=5))
def test_joined_texts_have_the_sum_of_their_histograms(histograms: list[dict[int, int]]) -> None:
    joined = ",".join(to_text(each)[1:-1] for each in histograms if each)
    assert sum_texts(joined) == merge(histograms)


def test_a_sum_of_a_long_text_is_correct_and_not_cached() -> None:
    joined = ",".join(["3,1,70,2"] * (histogram.MAX_CACHED_CHARS // 9 + 1))
    count = (joined.count(",") + 1) // 4
    before = histogram._sum_cached.cache_info().currsize
    assert len(joined) > histogram.MAX_CACHED_CHARS
    assert sum_texts(joined) == {3: count, 70: 2 * count}
    assert histogram._sum_cached.cache_info().currsize == before
