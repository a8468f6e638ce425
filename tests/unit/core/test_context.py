"""The context of a call: scopes, slots, and the simulation of a test."""

from __future__ import annotations

import contextvars
import math
import threading
from dataclasses import dataclass

import pytest

from redrive import Key
from redrive.core.clock import SYSTEM
from redrive.core.context import (
    IDS,
    SIMULATION,
    SLOT,
    SLOW_PATH_USERS,
    ActiveScope,
    ContextSlot,
    Scope,
    Simulation,
    clock_around,
    end_of,
    job_around,
    key_around,
    own_slot,
    scope_around,
    simulate,
    within,
)
from redrive.testing import FakeClock

KEY = Key("shop", "ann", "o-1", "receipt")


@dataclass(frozen=True)
class Here:
    """A minimal layer for a scope."""

    job_id: str | None = None
    operation: str | None = "op"
    max_attempts: int | None = 3


def scope(end: float = math.inf, layer: Here | None = None, key: Key | None = None, outer: Scope | None = None) -> Scope:
    return (end, 2, layer, key, outer)


def test_a_new_context_has_no_scope() -> None:
    contextvars.Context().run(_nothing_around)


def _nothing_around() -> None:
    assert scope_around() is None
    assert end_of(scope_around()) == math.inf
    assert key_around(None) is None
    assert job_around(None) is None
    assert IDS.get() == {}
    assert clock_around() is SYSTEM


def test_scopes_nest() -> None:
    outer, inner = scope(end=10), scope(end=5)
    before = SLOT.get()
    first = ActiveScope(outer)
    assert scope_around() == outer
    second = ActiveScope(inner)
    assert scope_around() == inner
    second.leave()
    assert scope_around() == outer
    assert SLOT.get() is first
    first.leave()
    assert scope_around() is None
    assert SLOT.get() is before


def test_scopes_may_be_left_in_any_order() -> None:
    before = SLOT.get()
    first, second, third = ActiveScope(scope(end=3)), ActiveScope(scope(end=2)), ActiveScope(scope(end=1))
    second.leave()
    assert scope_around() == scope(end=1)
    assert SLOT.get() is third
    first.leave()
    assert scope_around() == scope(end=1)
    third.leave()
    assert scope_around() is None
    assert SLOT.get() is before


def test_a_scope_left_in_another_context_is_removed_from_its_own() -> None:
    outer = ActiveScope(scope(end=9))
    inner = ActiveScope(scope(end=1))
    elsewhere = contextvars.Context()
    elsewhere.run(inner.leave)
    assert elsewhere.run(scope_around) is None
    assert elsewhere.run(SLOT.get) is None
    assert scope_around() == scope(end=9)
    outer.leave()
    assert scope_around() is None


def test_a_copied_context_sees_that_a_scope_was_left() -> None:
    entered = ActiveScope(scope(end=1))
    copied = contextvars.copy_context()
    entered.leave()
    assert copied.run(scope_around) is None
    seen: list[Scope | None] = []
    thread = threading.Thread(target=lambda: seen.append(copied.run(scope_around)))
    thread.start()
    thread.join()
    assert seen == [None]


def test_each_thread_has_its_own_slot() -> None:
    def check() -> None:
        cell = own_slot()
        assert cell.scope is cell.base is None
        assert cell.thread == threading.get_ident()
        assert own_slot() is cell
        assert SLOT.get() is cell
        cell.scope = scope(end=1)
        assert scope_around() == scope(end=1)

    contextvars.Context().run(check)


def test_another_thread_sees_a_copied_context_as_it_was_created() -> None:
    seen: list[object] = []

    def check() -> None:
        entered = ActiveScope(scope(end=7))
        cell = own_slot()
        cell.scope = scope(end=3)  # as sync code does on its own thread
        copied = contextvars.copy_context()

        def other() -> None:
            seen.append(scope_around())
            mine = own_slot()
            seen.append(mine is cell)
            seen.append(mine.scope)
            seen.append(mine.thread == threading.get_ident())
            mine.scope = scope(end=1)

        thread = threading.Thread(target=copied.run, args=(other,))
        thread.start()
        thread.join()
        assert cell.scope == scope(end=3)
        entered.leave()

    contextvars.Context().run(check)
    assert seen == [scope(end=7), False, scope(end=7), True]


def test_a_slot_keeps_its_initial_scope_as_base() -> None:
    cell = ContextSlot(scope(end=4), 1)
    cell.scope = None
    assert cell.base == scope(end=4)


@pytest.mark.req("C-8")
@pytest.mark.parametrize(
    ("end", "outer", "left"), [(5.0, 10.0, 5.0), (10.0, 5.0, 5.0), (math.inf, 5.0, 5.0), (5.0, math.inf, 5.0)]
)
def test_a_deadline_only_shrinks(end: float, outer: float, left: float) -> None:
    around = scope(outer, Here(), KEY, scope())
    inner = within(end, around)
    assert inner[0] == end_of(inner) == left
    assert inner[1:] == around[1:]


@pytest.mark.req("C-8")
def test_a_deadline_outside_an_attempt_has_attempt_number_one() -> None:
    assert within(5.0, None) == (5.0, 1, None, None, None)


def test_the_innermost_key_counts() -> None:
    other = Key("shop", "bob", "o-2", "receipt")
    assert key_around(scope(key=KEY, outer=scope(key=other))) == KEY
    assert key_around(scope(outer=scope(outer=scope(key=other)))) == other
    assert key_around(scope(outer=scope())) is None


def test_the_innermost_job_counts() -> None:
    assert job_around(scope(layer=Here("j-1"), outer=scope(layer=Here("j-2")))) == "j-1"
    assert job_around(scope(layer=Here(), outer=scope(outer=scope(layer=Here("j-2"))))) == "j-2"
    assert job_around(scope(layer=Here(), outer=scope())) is None


def test_a_simulation_sets_its_clock_and_is_removed_afterwards() -> None:
    stage, watched = Simulation(FakeClock()), len(SLOW_PATH_USERS)
    assert (stage.draw, stage.faults) == (None, None)
    with simulate(stage):
        assert clock_around() is stage.clock
        assert SIMULATION.get() is stage
        assert len(SLOW_PATH_USERS) == watched + 1
    assert clock_around() is SYSTEM
    assert SIMULATION.get() is None
    assert len(SLOW_PATH_USERS) == watched


def test_a_simulation_is_removed_after_an_error() -> None:
    watched = len(SLOW_PATH_USERS)
    with pytest.raises(ZeroDivisionError), simulate(Simulation(FakeClock())):
        raise ZeroDivisionError
    assert (clock_around(), SIMULATION.get(), len(SLOW_PATH_USERS)) == (SYSTEM, None, watched)


def test_nested_simulations_remove_only_themselves() -> None:
    clock = FakeClock()
    outer, inner = Simulation(clock), Simulation(clock)
    with simulate(outer):
        with simulate(inner):
            assert clock_around() is clock
        assert outer in SLOW_PATH_USERS
        assert inner not in SLOW_PATH_USERS
        assert SIMULATION.get() is outer


def test_a_simulation_applies_to_its_own_context_only() -> None:
    with simulate(Simulation(FakeClock())):
        assert contextvars.Context().run(clock_around) is SYSTEM
