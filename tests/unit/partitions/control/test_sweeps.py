"""Ranges: each position has one partition, and each partition one position."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.partitions.control.sweeps import Grid
from redrive.partitions.key import Partition
from redrive.partitions.store.sweeps import pack_ids, unpack_ids

DAY = date(2026, 3, 1)
GRIDS = st.builds(
    lambda customers, since, more, newest: Grid.of("crm", "q", customers, since, since + timedelta(days=more), newest=newest),
    st.lists(st.sampled_from("abcdef"), min_size=1, unique=True), st.dates(date(2000, 1, 1), date(2000, 1, 20)),
    st.integers(0, 12), st.booleans(),
)  # fmt: skip


@given(GRIDS)
def test_places_and_partitions_are_one_to_one(grid: Grid) -> None:
    found = [grid.at(place) for place in range(len(grid))]
    assert len(set(found)) == len(grid) == len(grid.customers) * grid.days
    assert [grid.place(one) for one in found] == list(range(len(grid)))
    dates = [one.logical_date for one in found]
    assert dates == sorted(dates, reverse=grid.newest)


@given(GRIDS, GRIDS)
def test_overlap_counts_common_partitions(one: Grid, other: Grid) -> None:
    both = {one.at(place) for place in range(len(one))} & {other.at(place) for place in range(len(other))}
    assert one.overlap(other) == other.overlap(one) == len(both)


def test_invalid_ranges_are_rejected() -> None:
    with pytest.raises(ValueError, match="reversed"):
        Grid.of("crm", "q", ["a"], "2026-02-01", "2026-01-01")
    with pytest.raises(ValueError, match="no customer"):
        Grid.of("crm", "q", [], DAY)
    with pytest.raises(TypeError, match="not one text"):
        Grid.of("crm", "q", "acme", DAY)
    grid = Grid.of("crm", "q", ["a", "a", "b"], DAY)
    assert len(grid) == 2
    assert grid.place(Partition("crm", "a", "other", DAY)) is None
    assert grid.place(Partition("crm", "zz", "q", DAY)) is None
    with pytest.raises(IndexError, match="2 partitions"):
        grid.at(2)
    assert str(grid) == "crm/q: 2 customers × 2026-03-01 to 2026-03-01 = 2"


@given(st.lists(st.integers(0, 2**62)))
def test_ids_are_packed(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids
    assert len(pack_ids(ids)) == 8 * len(ids)
