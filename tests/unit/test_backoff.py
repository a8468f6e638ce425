"""Waits beside the policy: fixed steps, powers, full jitter."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest

from redrive import RetryPolicy, backoff

LAST = 1 - 2**-53  # the largest possible draw


@pytest.mark.req("R-9")
def test_steps_are_taken_in_turn_and_the_last_is_repeated() -> None:
    waits = backoff.steps(300, timedelta(minutes=30), 7200, jitter=0)
    assert [waits(attempt, 0.5) for attempt in range(1, 6)] == [300, 1800, 7200, 7200, 7200]


@pytest.mark.req("R-9")
def test_jitter_is_a_share_of_the_wait_in_both_directions() -> None:
    waits = backoff.steps(100, 200)  # ±10 % by default
    assert [waits(1, draw) for draw in (0.0, 0.5)] == [90.0, 100.0]
    assert waits(2, LAST) == pytest.approx(220)
    assert waits(2, LAST) < 220.0001
    assert backoff.fixed(10, jitter=1)(1, 0.0) == 0.0
    assert backoff.fixed(10, jitter=1)(1, 0.75) == 15.0


@pytest.mark.req("R-9")
def test_fixed_is_the_same_every_time() -> None:
    wait = backoff.fixed(timedelta(seconds=5))
    assert {wait(attempt, draw) for attempt in (1, 2, 100_000) for draw in (0.0, 0.3, LAST)} == {5.0}
    assert backoff.fixed(0)(1, 0.5) == 0


@pytest.mark.req("R-9")
def test_doubling_adds_up_to_a_share_of_the_wait() -> None:
    waits = backoff.doubling(0.1, cap=10)
    assert [waits(attempt, 0.0) for attempt in (1, 2, 3, 8)] == [0.1, 0.2, 0.4, 10]
    assert [waits(attempt, 1.0) for attempt in (1, 2, 3, 8)] == pytest.approx([0.15, 0.3, 0.6, 15])
    assert backoff.doubling(timedelta(seconds=1), cap=2, jitter=0)(5, 0.7) == 2


def test_powers_grow_from_the_base_up_to_the_cap() -> None:
    waits = backoff.powers(2, cap=60)
    assert [waits(attempt, 0.9) for attempt in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
    assert backoff.powers(3, cap=timedelta(minutes=1), jitter=0.5)(2, 0.0) == 4.5
    assert backoff.powers(0, cap=1)(1, 0.5) == 0.0
    assert backoff.powers(0.5, cap=1)(2, 0.5) == 0.25


@pytest.mark.req("R-9")
def test_full_jitter_draws_from_zero_to_the_doubled_base() -> None:
    waits = backoff.full_jitter(timedelta(seconds=2), cap=10)
    assert [waits(attempt, 0.5) for attempt in range(1, 6)] == [1, 2, 4, 5, 5]
    assert waits(3, 0.0) == 0.0
    assert waits(3, LAST) < 8


@pytest.mark.req("R-9", "R-4")
@pytest.mark.parametrize(
    ("waits", "least", "most"),
    [
        (backoff.steps(1, 2, jitter=1), 0, 4),
        (backoff.fixed(7, jitter=0.5), 3.5, 10.5),
        (backoff.powers(2, cap=60), 60, 60),
        (backoff.powers(1e308, cap=60, jitter=0.5), 30, 90),
        (backoff.powers(0.5, cap=60), 0, 0),
        (backoff.doubling(0.1, cap=60), 60, 90),
        (backoff.full_jitter(1, cap=60), 0, 60),
        (backoff.full_jitter(1e308, cap=60), 0, 60),
        (backoff.full_jitter(0, cap=60), 0, 0),
        (RetryPolicy().wait, 60, 61),
    ],
)
@pytest.mark.parametrize("attempt", [100_000, 10**30])
def test_no_wait_overflows_late_in_a_long_run(waits: backoff.Backoff, least: float, most: float, attempt: int) -> None:
    for draw in (0.0, 0.5, LAST):
        assert least <= waits(attempt, draw) <= most


@pytest.mark.req("R-9")
def test_backoffs_are_not_fields_of_the_policy() -> None:
    for name in ("steps", "fixed", "powers", "full_jitter", "backoff"):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            RetryPolicy(**{name: 1})


@pytest.mark.parametrize(
    "made",
    [backoff.steps(1), backoff.fixed(1), backoff.powers(2, cap=3), backoff.doubling(2, cap=3), backoff.full_jitter(2, cap=3)],
)
def test_backoffs_are_immutable(made: backoff.Backoff) -> None:
    for field in fields(made):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(made, field.name, 1)
    assert not hasattr(made, "__dict__")


def test_backoffs_are_equal_by_value_and_hashable() -> None:
    assert backoff.steps(1, 2) == backoff.steps(1.0, timedelta(seconds=2), jitter=0.1)
    assert backoff.fixed(1) != backoff.fixed(2)
    assert len({backoff.powers(2, cap=3), backoff.powers(2, cap=3), backoff.full_jitter(2, cap=3)}) == 2


def test_steps_without_a_wait_are_rejected() -> None:
    with pytest.raises(ValueError, match=f"^{re.escape('steps needs at least one wait, for example steps(300, 1800, 7200)')}$"):
        backoff.steps()


@pytest.mark.parametrize("wrong", [True, "5", None, [1, 2]])
def test_a_wait_of_an_invalid_type_is_named(wrong: Any) -> None:
    said = re.escape(f"seconds or a timedelta, not {type(wrong).__name__}: {wrong!r}")
    with pytest.raises(TypeError, match=f"^a wait must be {said}$"):
        backoff.steps(1, wrong)
    with pytest.raises(TypeError, match=f"^wait must be {said}$"):
        backoff.fixed(wrong)
    with pytest.raises(TypeError, match=f"^base must be {said}$"):
        backoff.full_jitter(wrong, cap=1)
    with pytest.raises(TypeError, match=f"^cap must be {said}$"):
        backoff.full_jitter(1, cap=wrong)
    with pytest.raises(TypeError, match=f"^cap must be {said}$"):
        backoff.powers(2, cap=wrong)
    with pytest.raises(TypeError, match="^base must be a number, not"):
        backoff.powers(wrong, cap=1)


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf, timedelta(days=-1)])
def test_a_wait_out_of_range_is_named(wrong: Any) -> None:
    made: list[tuple[str, Callable[[], object]]] = [
        ("a wait", lambda: backoff.steps(wrong)),
        ("wait", lambda: backoff.fixed(wrong)),
        ("base", lambda: backoff.full_jitter(wrong, cap=1)),
        ("cap", lambda: backoff.powers(2, cap=wrong)),
        ("cap", lambda: backoff.full_jitter(2, cap=wrong)),
    ]
    for name, make in made:
        with pytest.raises(ValueError, match=f"^{name} must "):
            make()


def test_a_cap_must_be_positive() -> None:
    with pytest.raises(ValueError, match="^cap must be above 0: 0$"):
        backoff.powers(2, cap=0)
    with pytest.raises(ValueError, match="^cap must be above 0: 0$"):
        backoff.full_jitter(2, cap=0)


@pytest.mark.parametrize("wrong", [1.01, 10, -0.1, math.nan])
def test_jitter_must_be_a_share(wrong: float) -> None:
    with pytest.raises(ValueError, match="^jitter "):
        backoff.steps(1, jitter=wrong)
    with pytest.raises(ValueError, match="^jitter "):
        backoff.fixed(1, jitter=wrong)
    with pytest.raises(ValueError, match="^jitter "):
        backoff.powers(2, cap=1, jitter=wrong)


def test_jitter_above_one_is_rejected_with_an_explanation() -> None:
    with pytest.raises(ValueError, match=re.escape("jitter must be a share of the wait, from 0 to 1: 5")):
        backoff.fixed(1, jitter=5)
    assert backoff.fixed(1, jitter=1)(1, 0.5) == 1.0
    with pytest.raises(TypeError, match="^jitter must be a number, not bool: True$"):
        backoff.fixed(1, jitter=True)
