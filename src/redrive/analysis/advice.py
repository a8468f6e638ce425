"""Advice: problems of a stack of layers, each with its fix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..core.fault import MAX_RETRY_AFTER_SECONDS
from ..core.text import format_duration
from .layer import MAX_COMPUTED_WAITS, Layer
from .worst_case import WorstCase, time_limit

Code: TypeAlias = Literal[
    "multiplies",
    "never_fits",
    "unreachable",
    "cut_short",
    "deaf",
    "no_limit",
    "long_wait",
    "no_waits",
    "hopeless",
    "mixed",
    "idle",
    "shared_budget",
]
SWITCHED_OFF = {
    "redrive": "max_attempts=1",
    "tenacity": "stop=stop_after_attempt(1)",
    "urllib3": "Retry(total=0)",
    "botocore": 'Config(retries={"total_max_attempts": 1})',
    "openai": "max_retries=0",
    "anthropic": "max_retries=0",
    "azure": "retry_total=0",
    "google": "retry=None",
    "obstore": 'retry_config={"max_retries": 0}',
    "redis": "Retry(NoBackoff(), 0)",
    "grpc": 'the channel option ("grpc.enable_retries", 0)',
    "stamina": "attempts=1",
    "backoff": "max_tries=1",
    "stripe": "max_network_retries=0",
    "elasticsearch": "max_retries=0",
    "aiohttp": "session._retry_connection = False",
    "aiohttp-retry": "ExponentialRetry(attempts=1)",
}
"""The setting that turns off the retries of each library."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One problem, and its fix."""

    code: Code
    layer: str | None
    """The layer with the problem. None: the whole stack."""
    says: str
    do: str

    @property
    def multiplies(self) -> bool:
        """Whether attempts are multiplied."""
        return self.code == "multiplies"


def advise(stack: Sequence[Layer], worst: WorstCase) -> tuple[Advice, ...]:
    """Return the advice for a stack, the most important first."""
    busy = {name for error in worst.errors for name in (error.owner, *error.again)}
    advice = [*_multiplying(stack, worst)]
    for index, layer in enumerate(stack):
        if layer.max_attempts > 1:
            advice += _time_limits(stack, index, worst) if layer.name in busy else ()
            advice += () if layer.is_ours else _other_libraries(stack, index, worst)
    advice += _whole_stack(stack, worst)
    idle = [layer.name for layer in stack if layer.max_attempts > 1 and layer.name not in busy]
    if idle:
        verb = "retries" if len(idle) == 1 else "retry"
        says = f"{_list(idle)} never {verb}: inner layers own all of these errors"
        do = "no change if this is intended; otherwise turn off retries of the inner layers"
        advice.append(Advice("idle", idle[0], says, do))
    return tuple(advice)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _multiplying(stack: Sequence[Layer], worst: WorstCase) -> Iterator[Advice]:
    indexes = {layer.name: index for index, layer in enumerate(stack)}
    for index, layer in reversed([*enumerate(stack)]):
        errors = [error for error in worst.errors if layer.name in error.again]
        if not errors:
            continue
        worst_error = max(errors, key=lambda error: error.attempts)
        chain = (str(worst_error.owner), *worst_error.again)
        inner = stack[indexes[chain[chain.index(layer.name) - 1]]]
        names = ", ".join(error.error for error in errors)
        calls, tries = math.prod(worst_error.tries[index + 1 :]), worst_error.tries[index]
        says = (
            f"{layer.name} retries errors that {inner.name} already retried ({names}): "
            f"{tries} × {calls} = {tries * calls} attempts"
        )
        yield Advice("multiplies", layer.name, says, _stop_multiplying(layer, inner))


def _stop_multiplying(layer: Layer, inner: Layer) -> str:
    if not layer.is_ours:
        return (
            f"{layer.by} does not recognise Redrive's retries: "
            f"{_switch_off(layer)}, or {_switch_off(inner)}"
        )
    if not inner.marks_exhaustion:
        return (
            f"Redrive does not recognise the retries of {inner.by}: "
            f"{_switch_off(inner)}, or {_switch_off(layer)}"
        )
    return (
        f"remove nested='allow' from {layer.name}; errors that were retried inside are then final"
    )


def _switch_off(layer: Layer) -> str:
    if layer.by in SWITCHED_OFF:
        return f"set {SWITCHED_OFF[layer.by]} for {layer.name}"
    return f"turn off retries of {layer.name}"


def _time_limits(stack: Sequence[Layer], index: int, worst: WorstCase) -> Iterator[Advice]:
    layer, row = stack[index], worst.layers[index]
    seconds, owner = time_limit(stack, index)
    available = format_duration(seconds)
    from_owner = "" if owner in (None, layer.name) else f" from {owner}"
    maximum = layer.max_attempts
    if row.attempts == 1:
        shortest = format_duration(layer.wait(1)[0])
        says = (
            f"{layer.name} never retries: its first backoff is at least {shortest}, and it has "
            f"{available}{from_owner}"
        )
        do = f"shorten the first backoff, or give {owner} more time"
        yield Advice("never_fits", layer.name, says, do)
    elif row.attempts < maximum:
        says = (
            f"{layer.name} can make at most {row.attempts} of its {maximum} attempts in "
            f"{available}{from_owner}"
        )
        do = f"shorten the backoff, give {owner} more time, or set max_attempts={row.attempts}"
        yield Advice("unreachable", layer.name, says, do)
    elif (count := _full_attempts_within(layer, seconds)) < maximum:
        condition, needed = "if attempts are slow (no attempt_timeout)", ""
        if layer.attempt_limit < math.inf:
            condition = f"if each takes its full {format_duration(layer.attempt_limit)}"
            total = layer.total_wait(maximum) + maximum * layer.attempt_limit
            needed = f" (all attempts need {format_duration(total)})"
        says = (
            f"{layer.name} makes {count} of its {maximum} attempts {condition}: "
            f"it has {available}{from_owner}"
        )
        do = f"give {owner} more time{needed}, or shorten the attempt_timeout of {layer.name}"
        yield Advice("cut_short", layer.name, says, do)


def _other_libraries(stack: Sequence[Layer], index: int, worst: WorstCase) -> Iterator[Advice]:
    layer, seconds = stack[index], worst.layers[index].seconds
    name = layer.name if layer.name == layer.by else f"{layer.name} ({layer.by})"
    outer_limits = [
        min(outer.timeout, outer.attempt_limit) for outer in stack[:index] if outer.is_ours
    ]
    limit = min(outer_limits, default=math.inf)
    if limit < (math.inf if seconds is None else seconds):
        needs = "has no limit of its own"
        if seconds is not None:
            needs = f"can take {format_duration(seconds)}"
        says = (
            f"{name} ignores its limit of {format_duration(limit)} and {needs}: "
            "async code is cancelled, sync code exceeds the limit"
        )
        do = f"set a timeout or an attempt_timeout of at most {format_duration(limit)}"
        yield Advice("deaf", layer.name, says, do)
    if layer.total_wait(layer.max_attempts) == 0:
        says = f"the backoff of {name} is not specified and counts as zero"
        do = "set backoff_base, backoff_max and jitter for realistic times"
        yield Advice("no_waits", layer.name, says, do)
    if layer.retries("permanent"):
        says = f"{name} retries permanent errors, which cannot succeed"
        do = 'limit it to transient errors, and list them here: on = ["transient", …]'
        yield Advice("hopeless", layer.name, says, do)


def _whole_stack(stack: Sequence[Layer], worst: WorstCase) -> Iterator[Advice]:
    if worst.seconds is None:
        says = "one attempt has no time limit, so the call may never end"
        yield Advice("no_limit", None, says, f"set an attempt_timeout for {stack[-1].name}")
    owner = next(error.owner for error in worst.errors if error.error == "throttled")
    for index, layer in enumerate(stack):
        if layer.name == owner and layer.is_ours and time_limit(stack, index)[0] == math.inf:
            longest = format_duration(MAX_RETRY_AFTER_SECONDS)
            says = f"{layer.name} has no time limit: it respects a Retry-After of up to {longest}"
            do = "set a timeout; a longer Retry-After then fails immediately, with retry_at"
            yield Advice("long_wait", layer.name, says, do)
    if worst.mixed_attempts > worst.attempts:
        says = (
            f"if the error changes between attempts, up to {worst.mixed_attempts} attempts are "
            "made in total: each layer retries errors that the inner layer does not"
        )
        do = "let one layer retry all errors, or set a common timeout or budget"
        yield Advice("mixed", None, says, do)
    for budget in {layer.budget: None for layer in stack if layer.budget is not None}:
        sharers = [layer.name for layer in stack if layer.budget == budget]
        if len(sharers) > 1:
            name = f"the budget {budget!r}" if isinstance(budget, str) else "one budget"
            says = f"{_list(sharers)} share {name}: retries of one leave fewer for the others"
            do = "no change if they call the same service; otherwise one budget for each"
            yield Advice("shared_budget", sharers[0], says, do)


def _full_attempts_within(layer: Layer, seconds: float) -> int:
    """Return how many attempts end in so many seconds, with the longest attempts and waits."""
    if seconds == math.inf:
        return layer.max_attempts
    count, elapsed = 0, 0.0
    while elapsed < seconds and count < min(layer.max_attempts, MAX_COMPUTED_WAITS):
        count += 1
        elapsed += layer.attempt_limit + layer.wait(count)[1]
    if elapsed < seconds and count < layer.max_attempts:
        step = layer.attempt_limit + layer.wait(MAX_COMPUTED_WAITS)[1]
        count += math.ceil((seconds - elapsed) / step)
    return min(count, layer.max_attempts)
