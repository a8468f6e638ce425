"""Advice: what is wrong or surprising in a stack of layers, in plain words, and what to do about it."""

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
"""How each library is told not to retry."""


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
        says = f"{_list(idle)} never {'tries' if len(idle) == 1 else 'try'} again: layers inside own all that would be retried"
        found.append(Advice("idle", idle[0], says, "nothing, if that is meant; else take retries off the layers inside"))
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
            f"{layer.name} tries again what {inside.name} has tried already ({what}): {times} × {once} = {times * once} attempts"
        )
        yield Advice("multiplies", layer.name, says, _stop_it(layer, inside))


def _stop_it(layer: Layer, inside: Layer) -> str:
    if not layer.ours:
        return f"{layer.by} cannot see Redrive's mark: {_off(layer)}, or {_off(inside)}"
    if not inside.tells:
        return f"the errors of {inside.by} do not tell that they were tried: {_off(inside)}, or {_off(layer)}"
    return f"{layer.name} has nested='allow'; without it, an error that was tried inside is final"


def _off(layer: Layer) -> str:
    return f"{OFF.get(layer.by, 'retries off')} for {layer.name}"


def _time(stack: Sequence[Layer], place: int, worst: Worst) -> Iterator[Advice]:
    layer, row = stack[place], worst.layers[place]
    seconds, whose = limit(stack, place)
    most = layer.max_attempts
    if row.attempts == 1:
        shortest = span(layer.wait(1)[0])
        says = f"{layer.name} never tries again: its first wait is {shortest} or more, and there are {span(seconds)}"
        yield Advice("never_fits", layer.name, says + _from(layer, whose), f"shorten the first wait, or give {whose} more time")
    elif row.attempts < most:
        says = f"{layer.name} can make no more than {row.attempts} of its {most} attempts in {span(seconds)}"
        do = f"shorten the waits, give {whose} more time, or say max_attempts={row.attempts}"
        yield Advice("unreachable", layer.name, says + _from(layer, whose), do)
    elif (made := _in_full(layer, seconds)) < most:
        endless = layer.each == math.inf
        each = "if each takes its time (no attempt_timeout)" if endless else f"where attempts take all their {span(layer.each)}"
        says = f"{layer.name} makes {made} of its {most} attempts {each}: it has {span(seconds)}{_from(layer, whose)}"
        enough = "" if endless else f" (all of it needs {span(layer.waiting(most) + most * layer.each)})"
        yield Advice("cut_short", layer.name, says, f"give {whose} more time{enough}, or {layer.name} a shorter attempt_timeout")


def _foreign(stack: Sequence[Layer], place: int, worst: Worst) -> Iterator[Advice]:
    layer, lasts = stack[place], worst.layers[place].seconds
    called = layer.name if layer.name == layer.by else f"{layer.name} ({layer.by})"
    around = min((min(outer.timeout, outer.each) for outer in stack[:place] if outer.ours), default=math.inf)
    if around < (math.inf if lasts is None else lasts):
        needs = "has no limit of its own" if lasts is None else f"can take {span(lasts)}"
        says = f"{called} does not know that it has {span(around)}, and {needs}: async code is cancelled, plain code runs over"
        yield Advice("deaf", layer.name, says, f"give it a timeout or an attempt_timeout that ends within {span(around)}")
    if layer.waiting(layer.max_attempts) == 0:
        says = f"the waits of {called} were not given, and count as none"
        yield Advice("no_waits", layer.name, says, "say backoff_base, backoff_max and jitter for true seconds")
    if layer.retries("permanent"):
        says = f"{called} tries permanent errors again, which cannot help"
        yield Advice("hopeless", layer.name, says, 'tell it which errors to retry, and say so here: on = ["transient", …]')


def _whole(stack: Sequence[Layer], worst: Worst) -> Iterator[Advice]:
    if worst.seconds is None:
        says = "nothing bounds one attempt, so that the whole may take for ever"
        yield Advice("no_limit", None, says, f"give {stack[-1].name} an attempt_timeout")
    owner = next(error.owner for error in worst.errors if error.error == "throttled")
    for place, layer in enumerate(stack):
        if layer.name == owner and layer.ours and limit(stack, place)[0] == math.inf:
            says = f"{layer.name} has no time limit: where a server asks for it (Retry-After), one wait is up to {span(PATIENCE)}"
            yield Advice("long_wait", layer.name, says, "say timeout; what does not fit leaves at once, with retry_at")
    if worst.mixed_attempts > worst.attempts:
        says = f"errors that change from attempt to attempt make up to {worst.mixed_attempts} attempts"
        says += " at the bottom: each layer goes on with what the one inside does not retry"
        yield Advice("mixed", None, says, "give the layers one owner for all errors, or a common timeout or budget")
    for budget in {layer.budget: None for layer in stack if layer.budget is not None}:
        sharers = [layer.name for layer in stack if layer.budget == budget]
        if len(sharers) > 1:
            named = f"the budget {budget!r}" if isinstance(budget, str) else "one budget"
            says = f"{_list(sharers)} share {named}: the retries of each leave fewer for the others"
            yield Advice("shared_budget", sharers[0], says, "nothing, if they call the same service; else one budget for each")


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
