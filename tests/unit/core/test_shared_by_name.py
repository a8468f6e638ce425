"""Shared objects: one for each name in a process."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import Any

import pytest

from redrive import Breaker, Budget
from redrive.core.lock import SharedByName
from redrive.core.seconds import Seconds, seconds


class Pool:
    def __init__(self, *, size: float = 4, wait: Seconds = 30) -> None:
        self.size = size
        self.wait = seconds("wait", wait)


@pytest.fixture
def pools() -> SharedByName[Pool]:
    return SharedByName(Pool)


@pytest.mark.req("C-9")
def test_the_same_name_returns_the_same_object(pools: SharedByName[Pool]) -> None:
    crm = pools.get("crm", {"size": 9})
    assert crm.size == 9
    assert pools.get("crm", {}) is crm
    assert pools.get("crm", {"size": 9}) is crm
    assert pools.get("erp", {"size": 9}) is not crm


@pytest.mark.req("C-9")
def test_different_numbers_for_one_name_are_rejected_and_both_are_named(pools: SharedByName[Pool]) -> None:
    crm = pools.get("crm", {"size": 9})
    with pytest.raises(ValueError, match="^Pool 'crm' already exists with size=9, wait=30.0, not size=8, wait=1.0; use"):
        pools.get("crm", {"size": 8, "wait": 1})
    with pytest.raises(ValueError, match=re.escape("Pool 'crm' already exists with wait=30.0, not wait=1.0")):
        pools.get("crm", {"wait": 1})
    assert (crm.size, crm.wait) == (9, 30)


@pytest.mark.req("C-9")
def test_equal_numbers_in_another_form_are_accepted(pools: SharedByName[Pool]) -> None:
    crm = pools.get("crm", {})
    assert pools.get("crm", {"size": 4.0, "wait": timedelta(seconds=30)}) is crm


def test_invalid_numbers_are_rejected_and_nothing_is_stored(pools: SharedByName[Pool]) -> None:
    with pytest.raises(ValueError, match="^wait must not be negative: -1$"):
        pools.get("crm", {"wait": -1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        pools.get("crm", {"colour": 1})
    assert pools.get("crm", {"wait": 2}).wait == 2


@pytest.mark.parametrize("name", ["", None, 5, b"crm", ["crm"]])
def test_a_name_must_be_text(pools: SharedByName[Pool], name: Any) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(f'the name of a shared Pool must be text: {name!r}')}$"):
        pools.get(name, {})


def test_concurrent_threads_get_the_same_object(pools: SharedByName[Pool]) -> None:
    at_once = threading.Barrier(8)
    got: list[Pool] = []

    def ask() -> None:
        at_once.wait()
        got.append(pools.get("crm", {"size": 7}))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 8
    assert len(set(map(id, got))) == 1


def test_budgets_and_breakers_with_one_name_are_distinct() -> None:
    assert isinstance(Budget.named("test_named.both"), Budget)
    assert isinstance(Breaker.named("test_named.both"), Breaker)
