"""Sizes of the parts of a multipart upload: at most 10,000, of at least 5 MiB."""

from __future__ import annotations

import pytest

from redrive.storage.s3.backend import MAX_PARTS, MIN_PART_BYTES, part_size

TERABYTE = 1000**4


@pytest.mark.parametrize(
    "size",
    [MIN_PART_BYTES, MIN_PART_BYTES + 1, 7 * 1024**3, MIN_PART_BYTES * MAX_PARTS, MIN_PART_BYTES * MAX_PARTS + 1, 5 * TERABYTE],
)
def test_a_known_size_has_parts_of_one_size(size: int) -> None:
    part = part_size(size, 1)
    assert part >= MIN_PART_BYTES
    assert part_size(size, MAX_PARTS) == part  # Some services need parts of one size.
    assert part * MAX_PARTS >= size
    assert part == MIN_PART_BYTES or part * (MAX_PARTS - 1) < size  # No larger than necessary.


def test_parts_of_an_unknown_size_grow_until_all_fit() -> None:
    sizes = [part_size(None, number) for number in range(1, MAX_PARTS + 1)]
    assert sizes[0] == MIN_PART_BYTES
    assert sizes == sorted(sizes)
    assert sum(sizes) >= 5 * TERABYTE  # The largest object of S3.
    assert sum(sizes[:1000]) == 1000 * MIN_PART_BYTES
