"""When a worker turns to what was running when a worker died: last, alone, and surely."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.worker.alone import LOOK, PATIENCE, VISIT, Alone


def test_an_idle_worker_looks_now_and_then() -> None:
    alone = Alone()
    assert alone.visits(1.0, idle=True, waits=lambda: True)
    alone.nothing(1.0)
    assert not alone.visits(1.0 + LOOK / 2, idle=True, waits=lambda: True)
    assert alone.visits(1.0 + LOOK, idle=True, waits=lambda: True)


def test_nothing_runs_beside_it_and_the_next_follows_at_once() -> None:
    alone = Alone()
    assert alone.visits(1.0, idle=True, waits=lambda: True)
    alone.began(1.0)
    assert alone.holds
    assert not alone.visits(1.1, idle=False, waits=lambda: True)
    assert alone.visits(1.2, idle=True, waits=lambda: True)


def test_others_have_their_turn_after_a_visit() -> None:
    alone = Alone()
    alone.visits(1.0, idle=True, waits=lambda: True)
    alone.began(1.0)
    assert not alone.visits(1.0 + VISIT, idle=True, waits=lambda: True)
    assert not alone.holds
    assert alone.visits(1.0 + VISIT + 4 * VISIT, idle=True, waits=lambda: True)


def test_with_nothing_else_to_do_one_follows_the_other() -> None:
    """Four jobs of 5 s: with others due they would wait 20 s each."""
    alone, now = Alone(), 1.0
    for _ in range(4):
        assert alone.visits(now, idle=True, waits=lambda: True, others=lambda: False)
        alone.began(now)
        assert not alone.visits(now + 1, idle=False, waits=lambda: True, others=lambda: False)
        now += 5.0


def test_a_pause_for_others_ends_with_them() -> None:
    alone = Alone()
    alone.visits(1.0, idle=True, waits=lambda: True)
    alone.began(1.0)
    assert not alone.visits(6.0, idle=True, waits=lambda: True, others=lambda: True)
    assert not alone.visits(7.0, idle=True, waits=lambda: True, others=lambda: True)
    assert alone.visits(8.0, idle=True, waits=lambda: True, others=lambda: False)


def test_a_busy_worker_waits_for_what_runs_and_not_for_ever() -> None:
    alone = Alone()
    assert not alone.visits(1.0, idle=False, waits=lambda: True)
    assert alone.holds
    assert not alone.visits(1.0 + PATIENCE, idle=False, waits=lambda: True)
    assert not alone.holds, "it goes on with the others"


def test_where_there_is_none_nobody_waits() -> None:
    alone = Alone()
    assert not alone.visits(1.0, idle=False, waits=lambda: False)
    assert not alone.holds


@given(st.floats(1.0, 500.0))
def test_whatever_else_runs_its_turn_comes(longest: float) -> None:
    """Others begin whenever they may, and take so long."""
    alone, now, busy_until = Alone(), 0.0, 0.0
    for _ in range(200_000):
        idle = now >= busy_until
        if alone.visits(now, idle=idle, waits=lambda: True):
            return
        if idle and not alone.holds:
            busy_until = now + longest
        now += 0.5
    raise AssertionError("it starves")


@given(st.floats(1.0, 500.0))
def test_waiting_for_it_costs_less_than_half(longest: float) -> None:
    alone, now, held = Alone(), 0.0, 0.0
    while now < 20 * longest:
        assert not alone.visits(now, idle=False, waits=lambda: True)
        held += 0.25 if alone.holds else 0.0
        now += 0.25
    assert held <= 0.45 * now + PATIENCE + 1
