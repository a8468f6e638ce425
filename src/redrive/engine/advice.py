"""Advice: problems and surprises in a stack of layers, each with its fix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..core.decision import PATIENCE
from ..core.span import span
from .layer import STEADY, Layer
from .worst import Worst, limit

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
OFF = {
    "redrive": "max_attempts=1",
    "tenacity": "stop=stop_after_attempt(1)",
    "urllib3": "Retry(total=0)",
    "botocore": 'Config(retries={"total_max_attempts": 1})',
    "openai": "max_retries=0",
    "anthropic": "max_retries=0",
    "azure": "retry_total=0",
    "google": "retry=None",
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
    """One thing to know, and what to do about it."""

    code: Code
    layer: str | None
    """The layer that it is about; None: the whole stack."""
    says: str
    do: str

    @property
    def multiplies(self) -> bool:
        """Whether attempts are multiplied: the one thing that is never right by accident."""
        return self.code == "multiplies"


def advise(stack: Sequence[Layer], worst: Worst) -> tuple[Advice, ...]:
    """What there is to say, the worst first."""
    busy = {name for error in worst.errors for name in (error.owner, *error.again)}
    found = [*_multiplied(stack, worst)]
    for place, layer in enumerate(stack):
        if layer.max_attempts > 1:
            found += _time(stack, place, worst) if layer.name in busy else ()
            found += () if layer.ours else _foreign(stack, place, worst)
    found += _whole(stack, worst)
    idle = [layer.name for layer in stack if layer.max_attempts > 1 and layer.name not in busy]
    if idle:
        says = f"{_list(idle)} never {'retries' if len(idle) == 1 else 'retry'}: inner layers own all of these errors"
        found.append(
            Advice("idle", idle[0], says, "no change if this is intended; otherwise turn off retries of the inner layers")
        )
    return tuple(found)


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _multiplied(stack: Sequence[Layer], worst: Worst) -> Iterator[Advice]:
    places = {layer.name: place for place, layer in enumerate(stack)}
    for place, layer in reversed([*enumerate(stack)]):
        met = [error for error in worst.errors if layer.name in error.again]
        if not met:
            continue
        most = max(met, key=lambda error: error.attempts)
        chain = (str(most.owner), *most.again)
        inside = stack[places[chain[chain.index(layer.name) - 1]]]
        what = ", ".join(error.error for error in met)
        once, times = math.prod(most.tries[place + 1 :]), most.tries[place]
        says = (
            f"{layer.name} retries errors that {inside.name} already retried ({what}): {times} × {once} = {times * once} attempts"
        )
        yield Advice("multiplies", layer.name, says, _stop_it(layer, inside))


def _stop_it(layer: Layer, inside: Layer) -> str:
    if not layer.ours:
        return f"{layer.by} does not recognise Redrive's retries: {_off(layer)}, or {_off(inside)}"
    if not inside.tells:
        return f"Redrive does not recognise the retries of {inside.by}: {_off(inside)}, or {_off(layer)}"
    return f"remove nested='allow' from {layer.name}; errors that were retried inside are then final"


def _off(layer: Layer) -> str:
    return f"set {OFF[layer.by]} for {layer.name}" if layer.by in OFF else f"turn off retries of {layer.name}"


def _time(stack: Sequence[Layer], place: int, worst: Worst) -> Iterator[Advice]:
    layer, row = stack[place], worst.layers[place]
    seconds, whose = limit(stack, place)
    most = layer.max_attempts
    if row.attempts == 1:
        shortest = span(layer.wait(1)[0])
        says = f"{layer.name} never retries: its first backoff is at least {shortest}, and it has {span(seconds)}"
        do = f"shorten the first backoff, or give {whose} more time"
        yield Advice("never_fits", layer.name, says + _from(layer, whose), do)
    elif row.attempts < most:
        says = f"{layer.name} can make at most {row.attempts} of its {most} attempts in {span(seconds)}"
        do = f"shorten the backoff, give {whose} more time, or set max_attempts={row.attempts}"
        yield Advice("unreachable", layer.name, says + _from(layer, whose), do)
    elif (made := _in_full(layer, seconds)) < most:
        endless = layer.each == math.inf
        each = "if attempts are slow (no attempt_timeout)" if endless else f"if each takes its full {span(layer.each)}"
        says = f"{layer.name} makes {made} of its {most} attempts {each}: it has {span(seconds)}{_from(layer, whose)}"
        enough = "" if endless else f" (all attempts need {span(layer.waiting(most) + most * layer.each)})"
        yield Advice(
            "cut_short", layer.name, says, f"give {whose} more time{enough}, or shorten the attempt_timeout of {layer.name}"
        )


def _foreign(stack: Sequence[Layer], place: int, worst: Worst) -> Iterator[Advice]:
    layer, lasts = stack[place], worst.layers[place].seconds
    called = layer.name if layer.name == layer.by else f"{layer.name} ({layer.by})"
    around = min((min(outer.timeout, outer.each) for outer in stack[:place] if outer.ours), default=math.inf)
    if around < (math.inf if lasts is None else lasts):
        needs = "has no limit of its own" if lasts is None else f"can take {span(lasts)}"
        says = f"{called} ignores its limit of {span(around)} and {needs}: async code is cancelled, sync code exceeds the limit"
        yield Advice("deaf", layer.name, says, f"set a timeout or an attempt_timeout of at most {span(around)}")
    if layer.waiting(layer.max_attempts) == 0:
        says = f"the backoff of {called} is not specified and counts as zero"
        yield Advice("no_waits", layer.name, says, "set backoff_base, backoff_max and jitter for realistic times")
    if layer.retries("permanent"):
        says = f"{called} retries permanent errors, which cannot succeed"
        yield Advice("hopeless", layer.name, says, 'limit it to temporary errors, and list them here: on = ["transient", …]')


def _whole(stack: Sequence[Layer], worst: Worst) -> Iterator[Advice]:
    if worst.seconds is None:
        says = "one attempt has no time limit, so the call may never end"
        yield Advice("no_limit", None, says, f"set an attempt_timeout for {stack[-1].name}")
    owner = next(error.owner for error in worst.errors if error.error == "throttled")
    for place, layer in enumerate(stack):
        if layer.name == owner and layer.ours and limit(stack, place)[0] == math.inf:
            says = f"{layer.name} has no time limit: it respects a Retry-After of up to {span(PATIENCE)}"
            yield Advice(
                "long_wait", layer.name, says, "set a timeout; a longer Retry-After then fails immediately, with retry_at"
            )
    if worst.mixed_attempts > worst.attempts:
        says = f"if the error changes between attempts, up to {worst.mixed_attempts} attempts are made in total: each layer"
        says += " retries errors that the inner layer does not"
        yield Advice("mixed", None, says, "let one layer retry all errors, or set a common timeout or budget")
    for budget in {layer.budget: None for layer in stack if layer.budget is not None}:
        sharers = [layer.name for layer in stack if layer.budget == budget]
        if len(sharers) > 1:
            named = f"the budget {budget!r}" if isinstance(budget, str) else "one budget"
            says = f"{_list(sharers)} share {named}: retries of one leave fewer for the others"
            yield Advice(
                "shared_budget", sharers[0], says, "no change if they call the same service; otherwise one budget for each"
            )


def _in_full(layer: Layer, seconds: float) -> int:
    """How many attempts are made in so many seconds where each takes all its time, with the longest waits."""
    if seconds == math.inf:
        return layer.max_attempts
    made, passed = 0, 0.0
    while passed < seconds and made < min(layer.max_attempts, STEADY):
        made += 1
        passed += layer.each + layer.wait(made)[1]
    if passed < seconds and made < layer.max_attempts:
        made += math.ceil((seconds - passed) / (layer.each + layer.wait(STEADY)[1]))
    return min(made, layer.max_attempts)


def _from(layer: Layer, whose: str | None) -> str:
    return "" if whose in (None, layer.name) else f" from {whose}"
