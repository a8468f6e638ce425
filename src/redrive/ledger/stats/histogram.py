"""Histograms of durations with buckets that grow by a constant ratio. Pure.

A bucket is 19 % wide, so a percentile is at most 9.1 % off. Only buckets with a count are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log2
from typing import TypeAlias

BUCKETS_PER_DOUBLING = 4
FIRST_MICROS = 64
"""Shorter durations are in the first bucket."""
OFFSET = BUCKETS_PER_DOUBLING * 6
"""The bucket of 1 µs, counted from the first bucket, without its sign."""
BUCKET_COUNT = 144
"""The last bucket begins at 42 days. Longer durations are in it, too."""
LAST_BUCKET = BUCKET_COUNT - 1
MICROS = 1_000_000
MAX_CACHED_CHARS = 20_000
"""Length of a cached text. A step with more has the minutes of many workers, and still changes."""

Histogram: TypeAlias = dict[int, int]
"""Counts by bucket."""


def bucket_of(micros: float, /) -> int:
    """Return the bucket of a duration in microseconds."""
    if micros < FIRST_MICROS:
        return 0
    return min(int(BUCKETS_PER_DOUBLING * log2(micros)) - OFFSET, LAST_BUCKET)


def seconds_of(bucket: int, /) -> float:
    """Return the geometric middle of a bucket in seconds."""
    return float(2 ** ((bucket + OFFSET + 0.5) / BUCKETS_PER_DOUBLING)) / MICROS


def percentile(histogram: Mapping[int, int], share: float, /) -> float | None:
    """Return the seconds that this share of the durations did not exceed. None: no durations."""
    total = sum(histogram.values())
    if not total:
        return None
    rank, passed = share * total, 0
    for bucket, count in sorted(histogram.items()):
        passed += count
        if passed >= rank:
            return seconds_of(bucket)
    return seconds_of(max(histogram))


def merge(histograms: Iterable[Mapping[int, int]], /) -> Histogram:
    """Return the sum of histograms."""
    total: Histogram = {}
    for histogram in histograms:
        if not total:
            total = dict(histogram)
            continue
        get = total.get
        for bucket, count in histogram.items():
            total[bucket] = get(bucket, 0) + count
    return total


def from_counts(counts: Sequence[int], /) -> Histogram:
    """Return the buckets of a list that have a count."""
    return {bucket: count for bucket, count in enumerate(counts) if count}


def to_text(histogram: Mapping[int, int], /) -> str:
    """Return the stored form: JSON, with buckets and counts in turn."""
    flat = [number for bucket in sorted(histogram) for number in (bucket, histogram[bucket])]
    return json.dumps(flat, separators=(",", ":"))


def from_text(text: str, /) -> Histogram:
    """Return the histogram of a stored form."""
    numbers = json.loads(text)
    return dict(zip(numbers[::2], numbers[1::2], strict=False))


def sum_texts(joined: str, /) -> Histogram:
    """Return the sum of stored forms that were joined by commas, without their brackets.

    Charts sum up hundreds of histograms. Parsing them one by one takes longer. Do not change the
    result: open pages read a chart every few seconds, and all of its steps but the last are cached.
    """
    return (_sum_cached if len(joined) <= MAX_CACHED_CHARS else _sum_numbers)(joined)


def _sum_numbers(joined: str) -> Histogram:
    numbers = json.loads(f"[{joined}]")
    counts = [0] * BUCKET_COUNT
    for bucket, count in zip(numbers[::2], numbers[1::2], strict=True):
        counts[bucket] += count
    return from_counts(counts)


_sum_cached = lru_cache(maxsize=512)(_sum_numbers)
