"""Numbers and durations: accepted values, and errors for the others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest

from redrive.core.seconds import number, positive, real, seconds, whole_number

HUGE = 10**400  # an int beyond the range of floats
NO_NUMBERS = [True, False, "1", "", b"1", None, [], {}, Decimal(1), 1j, float, object()]


class Eight:
    """A whole number of another library, such as numpy's int64."""

    def __index__(self) -> int:
        return 8

    def __repr__(self) -> str:
        return "Eight()"


class Crooked:
    def __index__(self) -> str:
        return "8"


@pytest.mark.req("R-2")
@pytest.mark.parametrize("check", [number, real, seconds, positive])
@pytest.mark.parametrize(("given", "kept"), [(3, 3.0), (0.25, 0.25), (1e308, 1e308), (5e-324, 5e-324)])
def test_numbers_are_kept_as_floats(check: Callable[[str, object], float], given: float, kept: float) -> None:
    checked = check("jitter", given)
    assert checked == kept
    assert type(checked) is float


def test_zero_is_a_number_and_a_duration() -> None:
    assert (number("jitter", 0), real("jitter", -0.0), seconds("wait", timedelta(0))) == (0, 0, 0)


def test_only_real_takes_negative_numbers() -> None:
    assert real("after", -1.5) == -1.5
    for check in (number, seconds, positive):
        with pytest.raises(ValueError, match=re.escape("after must not be negative: -1.5")):
            check("after", -1.5)


@pytest.mark.req("R-2")
@pytest.mark.parametrize("check", [number, real])
@pytest.mark.parametrize("given", [*NO_NUMBERS, timedelta(1)])
def test_a_value_that_is_not_a_number_is_a_type_error(check: Callable[[str, object], float], given: object) -> None:
    said = f"jitter must be a number, not {type(given).__name__}: {given!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        check("jitter", given)


@pytest.mark.parametrize("check", [seconds, positive])
@pytest.mark.parametrize("given", NO_NUMBERS)
def test_a_value_that_is_not_a_duration_is_a_type_error(check: Callable[[str, object], float], given: object) -> None:
    said = f"window must be seconds or a timedelta, not {type(given).__name__}: {given!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        check("window", given)


@pytest.mark.req("R-2")
@pytest.mark.parametrize("check", [number, real, seconds, positive])
@pytest.mark.parametrize("given", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_are_rejected(check: Callable[[str, object], float], given: float) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'cap must be a finite number, not {given!r}')}$"):
        check("cap", given)


@pytest.mark.req("R-2")
@pytest.mark.parametrize("check", [number, real, seconds, positive])
@pytest.mark.parametrize("given", [HUGE, -HUGE])
def test_an_int_beyond_the_range_of_floats_is_a_value_error(check: Callable[[str, object], float], given: int) -> None:
    with pytest.raises(ValueError, match="^cap is too large a number; a float cannot hold it$"):
        check("cap", given)


def test_a_timedelta_is_a_duration_to_the_microsecond() -> None:
    assert seconds("wait", timedelta(minutes=5)) == 300.0
    assert positive("wait", timedelta(microseconds=1)) == 1e-6
    assert seconds("wait", timedelta.max) == timedelta.max.total_seconds()
    with pytest.raises(ValueError, match=re.escape("wait must not be negative: -1.0")):
        seconds("wait", timedelta(seconds=-1))


@pytest.mark.parametrize("given", [0, 0.0, -0.0, timedelta(0)])
def test_a_positive_duration_is_not_zero(given: object) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'window must be above 0: {given!r}')}$"):
        positive("window", given)


@pytest.mark.req("R-2")
def test_whole_numbers_of_other_libraries_become_ints() -> None:
    taken = whole_number("max_attempts", Eight())
    assert taken == 8
    assert type(taken) is int


@pytest.mark.req("R-2")
@pytest.mark.parametrize("given", [True, False, "3", b"3", 3.0, math.nan, None, [3], Decimal(3), int, Eight])
def test_a_value_that_is_not_whole_is_a_type_error(given: object) -> None:
    said = f"max_attempts must be a whole number, not {type(given).__name__}: {given!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        whole_number("max_attempts", given)


def test_an_index_that_is_not_an_int_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="__index__ returned non-int"):
        whole_number("max_attempts", Crooked())


def test_a_whole_number_has_an_inclusive_minimum() -> None:
    assert whole_number("size", 1) == 1
    assert whole_number("retries", 0, least=0) == 0
    assert whole_number("size", HUGE) == HUGE
    with pytest.raises(ValueError, match="^size must be at least 1: 0$"):
        whole_number("size", 0)
    with pytest.raises(ValueError, match="^retries must be at least 0: -1$"):
        whole_number("retries", -1, least=0)
    with pytest.raises(ValueError, match=re.escape("size must be at least 9: Eight()")):
        whole_number("size", Eight(), least=9)
