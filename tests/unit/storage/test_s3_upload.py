"""How an object is cut into parts: S3 takes 10,000 of them, of 5 MiB and more."""

from __future__ import annotations

import pytest

from redrive.storage.s3_upload import PART, PARTS, part_size

TERABYTE = 1000**4


@pytest.mark.parametrize("size", [PART, PART + 1, 7 * 1024**3, PART * PARTS, PART * PARTS + 1, 5 * TERABYTE])
def test_a_known_size_has_parts_of_one_size(size: int) -> None:
    part = part_size(size, 1)
    assert part >= PART
    assert part_size(size, PARTS) == part  # some services want them all alike
    assert part * PARTS >= size
    assert part == PART or part * (PARTS - 1) < size  # and none is larger than it must be


def test_an_unknown_size_fits_all_the_same() -> None:
    sizes = [part_size(None, number) for number in range(1, PARTS + 1)]
    assert sizes[0] == PART
    assert sizes == sorted(sizes)
    assert sum(sizes) >= 5 * TERABYTE  # the largest object that S3 holds
    assert sum(sizes[:1000]) == 1000 * PART
