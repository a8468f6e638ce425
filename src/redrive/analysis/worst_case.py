"""The worst case of a stack of retry layers, and which layer owns which error. Pure.

Attempts are counted as if each failed at once, with the shortest waits. Seconds are counted as if
each attempt took all of its time, with the longest waits. Budgets and breakers can only lower these
numbers, and are not considered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ..core.fault import KINDS, Kind
from .layer import Error, Layer, Library, error_name, kind_of

MAX_LISTED_WAITS = 50
"""Waits of one layer that are listed."""


@dataclass(frozen=True, slots=True)
class WorstCaseLayer:
    """The worst case of one layer in its stack."""

    name: str
    by: Library
    max_attempts: int
    attempts: int
    """Attempts that can start in the available time."""
    attempt_timeout: float | None
    limit: float | None
    """Seconds that it has: its own time limit, or one around it."""
    limited_by: str | None
    """The layer that sets the limit."""
    calls: int
    """Attempts of the innermost layer that one call of this layer makes."""
    seconds: float | None
    """Seconds that one call takes. None: no limit."""
    waits: tuple[tuple[float, float], ...]
    """Minimum and maximum wait after each failed attempt, at most 50 of them."""


@dataclass(frozen=True, slots=True)
class WorstCaseError:
    """The worst case of one error that occurs every time."""

    error: str
    kind: Kind
    owner: str | None
    """The innermost layer that retries it."""
    attempts: int
    """Attempts of the innermost layer."""
    seconds: float | None
    again: tuple[str, ...]
    """Outer layers that retry it once more, innermost first. These multiply."""
    tries: tuple[int, ...]
    """Attempts that each layer makes for one call, outermost first."""


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The worst case of a stack."""

    layers: tuple[WorstCaseLayer, ...]
    errors: tuple[WorstCaseError, ...]
    attempts: int
    """If the same error occurs every time."""
    seconds: float | None
    mixed_attempts: int
    """If the errors change from attempt to attempt."""
    mixed_seconds: float | None


class InnerRetries(IntEnum):
    """How an error shows that an inner layer has used up its retries."""

    NOT_SHOWN = 0
    MARKED = 1
    """By the mark of Redrive."""
    READ = 2
    """By the error of another library."""


def worst_case(stack: Sequence[Layer]) -> WorstCase:
    """Return the worst case of these layers, the outermost first."""
    limits = [time_limit(stack, index) for index in range(len(stack))]
    attempts = [layer.attempts_within(limits[index][0]) for index, layer in enumerate(stack)]
    errors_by_name: dict[str, Error] = {kind: kind for kind in KINDS}
    for layer in stack:
        named = {error_name(error): error for error in layer.errors}
        errors_by_name |= {name: named[name] for name in named if name not in errors_by_name}
    calls, seconds = [1] * len(stack), [0.0] * len(stack)
    errors = []
    for name, error in errors_by_name.items():
        retried = retrying_layers(stack, error)
        tries = [attempts[index] if retried[index] else 1 for index in range(len(stack))]
        durations = _durations(stack, tries, limits)
        for index in range(len(stack)):
            calls[index] = max(calls[index], math.prod(tries[index:]))
            seconds[index] = max(seconds[index], durations[index])
        owners = [index for index in reversed(range(len(stack))) if retried[index]]
        errors.append(
            WorstCaseError(
                error=name,
                kind=kind_of(error),
                owner=stack[owners[0]].name if owners else None,
                attempts=math.prod(tries),
                seconds=_finite(durations[0]),
                again=tuple(
                    stack[index].name
                    for index in owners[1:]
                    if tries[index] > 1 and math.prod(tries[index + 1 :]) > 1
                ),
                tries=tuple(tries),
            )
        )
    mixed_attempts, mixed_tries = _changing_errors(stack, tuple(errors_by_name.values()), attempts)
    layers = tuple(
        WorstCaseLayer(
            name=layer.name,
            by=layer.by,
            max_attempts=layer.max_attempts,
            attempts=attempts[index],
            attempt_timeout=_finite(layer.attempt_limit),
            limit=_finite(limits[index][0]),
            limited_by=limits[index][1],
            calls=calls[index],
            seconds=_finite(seconds[index]),
            waits=tuple(
                layer.wait(attempt)
                for attempt in range(1, min(layer.max_attempts, MAX_LISTED_WAITS + 1))
            ),
        )
        for index, layer in enumerate(stack)
    )
    return WorstCase(
        layers=layers,
        errors=tuple(errors),
        attempts=max(error.attempts for error in errors),
        seconds=_finite(seconds[0]),
        mixed_attempts=mixed_attempts,
        mixed_seconds=_finite(_durations(stack, mixed_tries, limits)[0]),
    )


def time_limit(stack: Sequence[Layer], index: int) -> tuple[float, str | None]:
    """Return the seconds that a layer has, and the layer that sets the limit."""
    layer = stack[index]
    limits = [(layer.timeout, layer.name)] if layer.timeout < math.inf else []
    if layer.is_ours:  # other libraries do not know of deadlines around them
        limits += [
            (seconds, outer.name)
            for outer in stack[:index]
            if outer.is_ours
            for seconds in (outer.timeout, outer.attempt_limit)
            if seconds < math.inf
        ]
    return min(limits, key=lambda pair: pair[0], default=(math.inf, None))


def _meet(layer: Layer, error: Error, inner: InnerRetries) -> tuple[bool, InnerRetries]:
    """Return whether a layer retries an error, and what the error shows when it leaves it."""
    wants = layer.max_attempts > 1 and layer.retries(error)
    if not layer.is_ours:
        is_read = wants and layer.marks_exhaustion and not inner
        return wants, (InnerRetries.READ if is_read else inner)
    if layer.nested == "final" and inner:
        return False, inner
    return (True, InnerRetries.MARKED) if wants else (False, inner)


def retrying_layers(stack: Sequence[Layer], error: Error) -> list[bool]:
    """Return for each layer whether it retries an error that occurs every time."""
    inner = InnerRetries.NOT_SHOWN
    retried: list[bool] = []
    for layer in reversed(stack):
        is_retried, inner = _meet(layer, error, inner)
        retried.insert(0, is_retried)
    return retried


def _changing_errors(
    stack: Sequence[Layer], errors: Sequence[Error], attempts: Sequence[int]
) -> tuple[int, list[int]]:
    """Return the most attempts of the innermost layer if errors change, and those of each layer.

    From the inside out: for each error, and what it shows of inner retries, the most attempts after
    which it can leave a layer.
    """
    calls_by_error: dict[tuple[Error, InnerRetries], int] = {
        (error, InnerRetries.NOT_SHOWN): 1 for error in errors
    }
    tries: list[int] = []
    for index in reversed(range(len(stack))):
        met = {leaving: _meet(stack[index], *leaving) for leaving in calls_by_error}
        most_calls = max(
            (calls for leaving, calls in calls_by_error.items() if met[leaving][0]), default=0
        )
        count = attempts[index] if most_calls else 1
        outside: dict[tuple[Error, InnerRetries], int] = {}
        for leaving, calls in calls_by_error.items():
            key = (leaving[0], met[leaving][1])
            outside[key] = max(outside.get(key, 0), (count - 1) * most_calls + calls)
        calls_by_error = outside
        tries.insert(0, count)
    return max(calls_by_error.values()), tries


def _durations(
    stack: Sequence[Layer], tries: Sequence[int], limits: Sequence[tuple[float, str | None]]
) -> list[float]:
    """Return the seconds of one call of each layer, if every attempt takes all of its time."""
    duration, respects_limits = math.inf, True
    durations: list[float] = []
    for index in reversed(range(len(stack))):
        layer = stack[index]
        # Redrive's layers and code that reads `current().remaining` respect limits. Other libraries
        # do not.
        attempt = duration
        if respects_limits or not layer.is_ours:
            attempt = min(layer.attempt_limit, duration)
        duration = layer.total_wait(tries[index]) + tries[index] * attempt
        respects_limits = respects_limits and layer.is_ours
        # No attempt starts after the limit. A running one ends in time if limits are respected.
        overrun = 0 if respects_limits else attempt
        duration = min(duration, limits[index][0] + overrun)
        durations.insert(0, duration)
    return durations


def _finite(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds
