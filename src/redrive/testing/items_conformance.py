"""ItemsConformance: the test suite of item stores. Run it on your own store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..batch.store.protocol import Items, ManyItems, SparingItems

THREADS = 8
INCREMENTS_PER_THREAD = 10


class ItemsConformance:
    """Test suite for your own item store: `class TestMyItems(ItemsConformance)`.

    Define the fixtures `items` (the store) and `item_ids` (ten ids that it knows, that may be sent
    and were never rejected). Optional: `unknown_id`, an id that the store does not know, and
    `second_items`, the same store opened again as another process would.
    """

    @pytest.fixture
    def unknown_id(self) -> str | None:
        """None: the store accepts every id."""
        return None

    @pytest.fixture
    def second_items(self, items: Items) -> Items | None:
        """None: the store cannot be opened twice."""
        return None

    def test_it_has_the_three_methods(self, items: Items) -> None:
        """The store is a `redrive.batch.Items`."""
        assert isinstance(items, Items)

    def test_an_increment_adds_one_and_says_the_new_count(
        self, items: Items, item_ids: Sequence[str]
    ) -> None:
        """Each item has its own count."""
        assert [items.increment(item_ids[0]) for _ in range(3)] == [1, 2, 3]
        assert items.increment(item_ids[1]) == 1
        assert items.increment(item_ids[0]) == 4

    def test_no_increment_is_lost(self, items: Items, item_ids: Sequence[str]) -> None:
        """Many threads increment one item: every count is returned once."""
        with ThreadPoolExecutor(THREADS) as pool:
            counts = list(
                pool.map(
                    lambda _: items.increment(item_ids[0]), range(THREADS * INCREMENTS_PER_THREAD)
                )
            )
        assert sorted(counts) == list(range(1, THREADS * INCREMENTS_PER_THREAD + 1))

    def test_increments_of_different_items_do_not_disturb_each_other(
        self, items: Items, item_ids: Sequence[str]
    ) -> None:
        """Many threads increment one item each."""
        ids = list(item_ids[:THREADS])
        with ThreadPoolExecutor(THREADS) as pool:
            counts = list(
                pool.map(
                    lambda item_id: [
                        items.increment(item_id) for _ in range(INCREMENTS_PER_THREAD)
                    ],
                    ids,
                )
            )
        assert counts == [list(range(1, INCREMENTS_PER_THREAD + 1))] * len(ids)

    def test_pending_is_what_may_still_be_sent(self, items: Items, item_ids: Sequence[str]) -> None:
        """Rejected items are pending too, and only requested ids are returned."""
        items.increment(item_ids[0])
        assert items.pending(list(item_ids)) == set(item_ids)
        assert items.pending(item_ids[:2]) == set(item_ids[:2])
        assert items.pending([]) == set()

    def test_giving_up_is_forward_only(self, items: Items, item_ids: Sequence[str]) -> None:
        """The first call returns True. The item is not pending any more, even if it is counted."""
        assert items.give_up(item_ids[0], "checksum") is True
        assert items.give_up(item_ids[0], "again") is False
        items.increment(item_ids[0])
        assert items.pending(item_ids[:2]) == {item_ids[1]}
        assert items.give_up(item_ids[0], "and again") is False

    def test_one_of_many_gives_up(self, items: Items, item_ids: Sequence[str]) -> None:
        """Many threads give up one item: one call returns True."""
        with ThreadPoolExecutor(THREADS) as pool:
            results = list(
                pool.map(lambda _: items.give_up(item_ids[0], "checksum"), range(THREADS))
            )
        assert results.count(True) == 1

    def test_an_item_that_does_not_exist(self, items: Items, unknown_id: str | None) -> None:
        """KeyError, if the store knows which ids exist."""
        if unknown_id is not None:
            with pytest.raises(KeyError):
                items.increment(unknown_id)
            assert items.pending([unknown_id]) == set()

    def test_many_at_once_is_the_same(
        self, items: Items, item_ids: Sequence[str], unknown_id: str | None
    ) -> None:
        """For stores with `increment_many` and `give_up_many`."""
        if not isinstance(items, ManyItems):
            pytest.skip("it counts one by one")
        first, second, third = item_ids[:3]
        items.increment(second)
        assert dict(items.increment_many([first, second, third])) == {first: 1, second: 2, third: 1}
        assert items.give_up_many({first: "a", second: "b"}) == {first, second}
        assert items.give_up_many({second: "b", third: "c"}) == {third}
        assert items.pending(item_ids) == set(item_ids[3:])
        if unknown_id is not None:
            with pytest.raises(KeyError):
                items.increment_many([item_ids[3], unknown_id])
            assert items.increment(item_ids[3]) == 1  # All of them or none.

    def test_many_at_once_by_many_threads(self, items: Items, item_ids: Sequence[str]) -> None:
        """Threads with different orders of ids do not deadlock, and no increment is lost."""
        if not isinstance(items, ManyItems):
            pytest.skip("it counts one by one")
        orders = [list(item_ids), list(reversed(item_ids))] * (THREADS // 2)
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(items.increment_many, orders))
        assert dict(items.increment_many(item_ids)) == dict.fromkeys(item_ids, THREADS + 1)

    def test_uncharged_rejections_are_counted_apart(
        self, items: Items, item_ids: Sequence[str], unknown_id: str | None
    ) -> None:
        """For stores with `spare_many`: a separate count, which is not an attempt."""
        if not isinstance(items, SparingItems) or not items.spare_many(item_ids[9:10]):
            pytest.skip("it does not count rejections in outages: each of them is an attempt")
        first, second = item_ids[:2]
        assert dict(items.spare_many([first])) == {first: 1}
        assert dict(items.spare_many([first, second])) == {first: 2, second: 1}
        assert items.increment(first) == 1
        assert dict(items.spare_many([first])) == {first: 3}
        assert items.pending([first, second]) == {first, second}
        if unknown_id is not None:
            with pytest.raises(KeyError):
                items.spare_many([second, unknown_id])
            assert dict(items.spare_many([second])) == {second: 2}  # All of them or none.

    def test_no_uncharged_rejection_is_lost(self, items: Items, item_ids: Sequence[str]) -> None:
        """Many threads count the same items: every count is returned once."""
        if not isinstance(items, SparingItems) or not items.spare_many(item_ids[9:10]):
            pytest.skip("it does not count rejections in outages: each of them is an attempt")
        orders = [list(item_ids[:3]), list(reversed(item_ids[:3]))] * (THREADS // 2)
        with ThreadPoolExecutor(THREADS) as pool:
            counts = list(pool.map(items.spare_many, orders))
        assert sorted(count[item_ids[0]] for count in counts) == list(range(1, THREADS + 1))

    def test_counts_are_in_the_store_and_not_in_the_process(
        self, items: Items, second_items: Items | None, item_ids: Sequence[str]
    ) -> None:
        """Another process continues the counts of this one."""
        if second_items is None:
            pytest.skip("no fixture second_items")
        assert (items.increment(item_ids[0]), second_items.increment(item_ids[0])) == (1, 2)
        if (
            isinstance(items, SparingItems)
            and isinstance(second_items, SparingItems)
            and items.spare_many(item_ids[9:10])
        ):
            assert dict(items.spare_many(item_ids[:1])) == {item_ids[0]: 1}
            assert dict(second_items.spare_many(item_ids[:1])) == {item_ids[0]: 2}
        items.give_up(item_ids[0], "checksum")
        assert second_items.pending(item_ids[:2]) == {item_ids[1]}
