"""Budget: an allowance of retries shared by many calls."""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import Budget
from redrive.core import budget as module
from redrive.core.budget import UNLIMITED
from redrive.core.fault import Kind

NUMBERS = ("capacity", "cost", "throttled_cost", "refill", "floor")


@pytest.fixture(params=[True, False], ids=["gil", "free-threaded"])
def threading_model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to count: without a lock where the GIL makes it atomic, and with one."""
    monkeypatch.setattr(module, "GIL", request.param)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads that switch as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[], None], count: int = 8) -> None:
    together = threading.Barrier(count)

    def run() -> None:
        together.wait()
        work()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.req("C-9")
def test_the_default_numbers() -> None:
    budget = Budget()
    assert [getattr(budget, name) for name in NUMBERS] == [500, 14, 5, 1, 1]
    assert (budget.left, budget.denied) == (500, 0)
    assert repr(budget) == "Budget(left=500, capacity=500)"


@pytest.mark.req("C-9")
@pytest.mark.usefixtures("threading_model")
@pytest.mark.parametrize(("kind", "cost"), [("transient", 14), ("timeout", 14), ("unknown", 14), ("throttled", 5)])
def test_a_retry_costs_by_the_class_of_its_error(kind: Kind, cost: float) -> None:
    budget = Budget(capacity=100)
    assert budget.spend(kind) == cost
    assert budget.left == 100 - cost


@pytest.mark.req("C-9")
@pytest.mark.usefixtures("threading_model")
def test_an_empty_bucket_allows_nothing_and_loses_nothing() -> None:
    budget = Budget(capacity=30, cost=10, throttled_cost=4)
    assert [budget.spend("transient") for _ in range(4)] == [10, 10, 10, None]
    assert budget.left == 0
    budget.refund(4)
    assert budget.spend("transient") is None
    assert budget.spend("throttled") == 4
    assert budget.left == 0


@pytest.mark.req("C-9")
@pytest.mark.usefixtures("threading_model")
def test_a_success_refills_up_to_the_capacity() -> None:
    budget = Budget(capacity=20, cost=10, refill=3)
    budget.spend("transient")
    budget.refund()
    assert budget.left == 13
    budget.refund(5)
    assert budget.left == 18
    budget.refund()
    assert budget.left == 20
    budget.refund(1000)
    assert budget.left == 20
    budget.spend("transient")
    budget.refund(0)  # refund of a retry that the floor allowed
    assert budget.left == 13


@pytest.mark.usefixtures("threading_model")
def test_below_capacity_is_true_only_if_tokens_are_missing() -> None:
    budget = Budget(capacity=20, cost=10, throttled_cost=0)
    assert budget.below_capacity is False
    budget.spend("throttled")
    assert budget.below_capacity is False
    budget.spend("transient")
    assert budget.below_capacity is True
    budget.refund(9)
    assert budget.below_capacity is True
    budget.refund()
    assert budget.below_capacity is False
    assert Budget(capacity=0).below_capacity is False


@pytest.mark.req("C-9")
def test_retries_are_bounded_by_refills_of_successes() -> None:
    budget = Budget(capacity=140, cost=14, refill=1, floor=0)
    retries = 0
    for _ in range(1000):  # an outage: every call fails and requests a retry, which also fails
        retries += budget.spend("transient") is not None or budget.allow_by_floor(0.0)
    assert retries == 10
    for _ in range(140):
        budget.refund()
    assert budget.spend("transient") == 14


@pytest.mark.req("C-9")
def test_the_floor_allows_its_retries_per_second() -> None:
    budget = Budget(capacity=0, floor=2)
    moments = [100.0, 100.1, 100.49, 100.5, 100.6, 101.0, 101.2, 500.0]
    assert [budget.allow_by_floor(now) for now in moments] == [True, False, False, True, False, True, False, True]
    assert budget.denied == 4
    assert budget.left == 0


@pytest.mark.req("C-9")
def test_the_floor_does_not_save_up_for_a_burst() -> None:
    budget = Budget(capacity=0, floor=1)
    assert budget.allow_by_floor(0.0)
    assert [budget.allow_by_floor(1000.0) for _ in range(3)] == [True, False, False]


@pytest.mark.req("C-9")
def test_without_a_floor_no_retry_is_allowed_beyond_the_capacity() -> None:
    budget = Budget(capacity=0, floor=0)
    assert [budget.allow_by_floor(now) for now in (0.0, 10.0, 1e9)] == [False, False, False]
    assert budget.denied == 3


@pytest.mark.req("C-9")
def test_a_clock_that_jumps_backwards_does_not_block_the_floor() -> None:
    budget = Budget(capacity=0, floor=1)
    assert budget.allow_by_floor(1e6)
    assert budget.allow_by_floor(5.0)
    assert not budget.allow_by_floor(5.5)
    assert budget.allow_by_floor(6.0)


def test_the_smallest_floor_allows_one_retry() -> None:
    budget = Budget(capacity=0, floor=5e-324)
    assert budget.allow_by_floor(0.0)
    assert not budget.allow_by_floor(1e300)


@pytest.mark.req("C-9")
def test_budgets_are_shared_by_name_in_the_process() -> None:
    crm = Budget.named("test_budget.crm", capacity=50)
    assert Budget.named("test_budget.crm") is crm
    assert Budget.named("test_budget.erp") is not crm
    crm.spend("transient")
    assert Budget.named("test_budget.crm", capacity=50).left == 36
    with pytest.raises(ValueError, match=re.escape("Budget 'test_budget.crm' already exists with capacity=50.0, not cap")):
        Budget.named("test_budget.crm", capacity=60)


@pytest.mark.req("C-9")
@pytest.mark.usefixtures("threading_model")
def test_an_unlimited_budget_is_never_spent() -> None:
    for budget in (Budget.unlimited(), UNLIMITED):
        assert all(budget.spend("transient") == 14 for _ in range(1000))
        budget.refund()
        assert budget.left == budget.capacity == math.inf
        assert repr(budget) == "Budget(left=inf, capacity=inf)"


def test_an_unlimited_budget_has_the_type_of_its_class() -> None:
    class Mine(Budget):
        pass

    assert type(Mine.unlimited()) is Mine


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_checked_by_name(name: str) -> None:
    assert getattr(Budget(**{name: 0}), name) == 0
    for wrong in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"^{name} must "):
            Budget(**{name: wrong})
    wrongs: list[Any] = [True, "5", None]
    for strange in wrongs:
        with pytest.raises(TypeError, match=f"^{name} must be a number, not {type(strange).__name__}: "):
            Budget(**{name: strange})


@pytest.mark.req("C-9")
@pytest.mark.usefixtures("threading_model", "restless")
def test_threads_never_get_more_retries_than_tokens_allow() -> None:
    budget = Budget(capacity=14 * 1000, floor=0)
    granted: list[int] = []

    def spend() -> None:
        granted.append(sum(budget.spend("transient") is not None for _ in range(1000)))

    in_threads(spend)
    assert sum(granted) == 1000
    assert budget.left == 0


@pytest.mark.req("C-9")
@pytest.mark.usefixtures("threading_model", "restless")
def test_threads_lose_no_token() -> None:
    budget = Budget(capacity=10_000, cost=14, throttled_cost=5)

    def borrow() -> None:
        for _ in range(2000):
            paid = budget.spend("throttled")
            assert paid is not None
            budget.refund(paid)

    in_threads(borrow)
    assert budget.left == 10_000


@pytest.mark.req("C-9")
@pytest.mark.usefixtures("restless")
def test_threads_share_the_floor_and_every_denial_is_counted() -> None:
    budget = Budget(capacity=0, floor=1)
    spared: list[int] = []
    in_threads(lambda: spared.append(sum(budget.allow_by_floor(float(second)) for second in [0] * 500)))
    assert sum(spared) == 1
    assert budget.denied == 8 * 500 - 1
