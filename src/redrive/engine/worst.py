"""Worst: what a stack of layers can do at the most, and which layer owns which error. Pure.

Attempts are counted as if each failed at once, after the shortest waits; seconds as if each took all of its time, and every
wait were at its longest. Budgets and breakers can only lower these numbers, and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ..core.fault import KINDS, Kind
from .layer import By, Error, Layer, kind_of, name_of

SHOWN = 50
"""Waits of one layer that are told; the others are like the last."""


@dataclass(frozen=True, slots=True)
class WorstLayer:
    """One layer, in its place."""

    name: str
    by: By
    max_attempts: int
    attempts: int
    """Those that can be reached in the time there is."""
    attempt_timeout: float | None
    limit: float | None
    """Seconds that it has: its own time limit, or one around it."""
    limited_by: str | None
    """The layer that sets the limit."""
    calls: int
    """Attempts that reach the bottom from one call of it."""
    seconds: float | None
    """How long one call of it takes; None: for ever."""
    waits: tuple[tuple[float, float], ...]
    """After each failed attempt, at the least and at the most; no more than 50 are told."""


@dataclass(frozen=True, slots=True)
class WorstError:
    """One error that comes back every time."""

    error: str
    kind: Kind
    owner: str | None
    """The innermost layer that tries it again."""
    attempts: int
    """Attempts that reach the bottom."""
    seconds: float | None
    again: tuple[str, ...]
    """Layers further out that try it once more, innermost first: these multiply."""
    tries: tuple[int, ...]
    """How many attempts each layer makes at it for one call, outermost first."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst that a stack can do."""

    layers: tuple[WorstLayer, ...]
    errors: tuple[WorstError, ...]
    attempts: int
    """With one error that comes back every time."""
    seconds: float | None
    mixed_attempts: int
    """With errors that change from attempt to attempt, as it suits them."""
    mixed_seconds: float | None


class Spent(IntEnum):
    """What an error says of retries that were spent on it inside."""

    NOTHING = 0
    MARKED = 1
    """Redrive's own mark."""
    READ = 2
    """Read from another library's error."""


def worst(stack: Sequence[Layer]) -> Worst:
    """The worst that these layers can do, the outermost first."""
    limits = [limit(stack, place) for place in range(len(stack))]
    reach = [layer.reach(limits[place][0]) for place, layer in enumerate(stack)]
    named: dict[str, Error] = {kind: kind for kind in KINDS}
    for layer in stack:
        named.update({name_of(error): error for error in layer.errors if name_of(error) not in named})
    calls, taken = [1] * len(stack), [0.0] * len(stack)
    errors = []
    for name, error in named.items():
        again = meetings(stack, error)
        tries = [reach[place] if tried else 1 for place, tried in enumerate(again)]
        lasts = _seconds(stack, tries, limits)
        for place in range(len(stack)):
            calls[place] = max(calls[place], math.prod(tries[place:]))
            taken[place] = max(taken[place], lasts[place])
        owners = [place for place in reversed(range(len(stack))) if again[place]]
        errors.append(
            WorstError(
                error=name,
                kind=kind_of(error),
                owner=stack[owners[0]].name if owners else None,
                attempts=math.prod(tries),
                seconds=_finite(lasts[0]),
                again=tuple(stack[place].name for place in owners[1:] if tries[place] > 1 and math.prod(tries[place + 1 :]) > 1),
                tries=tuple(tries),
            )
        )
    mixed, mixed_tries = _mixed(stack, tuple(named.values()), reach)
    return Worst(
        tuple(
            WorstLayer(
                name=layer.name,
                by=layer.by,
                max_attempts=layer.max_attempts,
                attempts=reach[place],
                attempt_timeout=_finite(layer.each),
                limit=_finite(limits[place][0]),
                limited_by=limits[place][1],
                calls=calls[place],
                seconds=_finite(taken[place]),
                waits=tuple(layer.wait(attempt) for attempt in range(1, min(layer.max_attempts, SHOWN + 1))),
            )
            for place, layer in enumerate(stack)
        ),
        tuple(errors),
        max(error.attempts for error in errors),
        _finite(taken[0]),
        mixed,
        _finite(_seconds(stack, mixed_tries, limits)[0]),
    )


def limit(stack: Sequence[Layer], place: int) -> tuple[float, str | None]:
    """Seconds that a layer has, and who says so: its own time limit, or one of Redrive's around it."""
    layer = stack[place]
    found = [(layer.timeout, layer.name)] if layer.timeout < math.inf else []
    if layer.ours:  # others do not know of deadlines around them
        found += [
            (seconds, outer.name)
            for outer in stack[:place]
            if outer.ours
            for seconds in (outer.timeout, outer.each)
            if seconds < math.inf
        ]
    return min(found, key=lambda pair: pair[0], default=(math.inf, None))


def meet(layer: Layer, error: Error, spent: Spent) -> tuple[bool, Spent]:
    """Whether a layer tries again what comes from inside, and what the error says when it leaves this layer."""
    wants = layer.max_attempts > 1 and layer.retries(error)
    if not layer.ours:
        return wants, (Spent.READ if wants and layer.tells and not spent else spent)
    if layer.nested == "final" and spent:
        return False, spent
    if wants:
        return True, Spent.MARKED
    return False, spent


def meetings(stack: Sequence[Layer], error: Error) -> list[bool]:
    """Which layers try again an error that comes back every time."""
    spent = Spent.NOTHING
    found: list[bool] = []
    for layer in reversed(stack):
        again, spent = meet(layer, error, spent)
        found.insert(0, again)
    return found


def _mixed(stack: Sequence[Layer], errors: Sequence[Error], reach: Sequence[int]) -> tuple[int, list[int]]:
    """The most attempts that reach the bottom where the errors may change, and how many each layer makes then.

    From the inside out: for each error, and what it says of spent retries, the most attempts after which it can leave.
    """
    most: dict[tuple[Error, Spent], int] = dict.fromkeys(((error, Spent.NOTHING) for error in errors), 1)
    tries: list[int] = []
    for place in reversed(range(len(stack))):
        met = {left: meet(stack[place], *left) for left in most}
        dearest = max((calls for left, calls in most.items() if met[left][0]), default=0)
        made = reach[place] if dearest else 1
        outside: dict[tuple[Error, Spent], int] = {}
        for left, calls in most.items():
            leaving = (left[0], met[left][1])
            outside[leaving] = max(outside.get(leaving, 0), (made - 1) * dearest + calls)
        most = outside
        tries.insert(0, made)
    return max(most.values()), tries


def _seconds(stack: Sequence[Layer], tries: Sequence[int], limits: Sequence[tuple[float, str | None]]) -> list[float]:
    """How long one call of each layer takes with so many attempts, every one of them as long as it may."""
    lasts, keeps = math.inf, True
    found: list[float] = []
    for place in reversed(range(len(stack))):
        layer = stack[place]
        # A limit is kept inside by Redrive's layers and by code that asks for `current().remaining`; other libraries go on.
        one = min(layer.each, lasts) if keeps or not layer.ours else lasts
        lasts = layer.waiting(tries[place]) + tries[place] * one
        keeps = keeps and layer.ours
        # No attempt starts after the limit; one that is under way ends in time only where limits are kept.
        lasts = min(lasts, limits[place][0] + (0 if keeps else one))
        found.insert(0, lasts)
    return found


def _finite(seconds: float) -> float | None:
    return None if seconds == math.inf else seconds
