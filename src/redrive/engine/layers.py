"""Layers: what a stack of retrying layers can do in the worst case, who owns which error, and what multiplies. As data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from ..core.policy import SERVICE, RetryPolicy
from .advice import Advice, advise
from .channel import are_options
from .layer import Layer
from .retry import Retry
from .worst import Worst, WorstError, WorstLayer, worst

__all__ = ["Advice", "Layer", "LayersReport", "Layered", "WorstError", "WorstLayer", "layers"]

Layered: TypeAlias = Any
"""A `Layer`, a `Retry`, a function that was decorated with one (or with several, one around the other), a `SendBuffer`, or
the options of a gRPC channel."""


@dataclass(frozen=True, slots=True)
class LayersReport(Worst):
    """What a stack of retry layers can do in the worst case. Immutable.

    Attributes:
        layers: The worst case of each layer.
        errors: The worst case of each kind of error.
        attempts: Maximum number of calls, if the same error occurs every time.
        seconds: Maximum number of seconds for it. None: no limit.
        mixed_attempts: Maximum number of calls, if the errors change from attempt to attempt.
        mixed_seconds: Maximum number of seconds for it. None: no limit.
        advice: Warnings and hints.
    """

    advice: tuple[Advice, ...] = ()

    @property
    def multiplies(self) -> bool:
        """True if one layer retries errors on which another layer has used up its retries."""
        return any(advice.multiplies for advice in self.advice)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON. An unlimited duration is null.

        Returns:
            The report.
        """
        return {"multiplies": self.multiplies, **asdict(self)}


def layers(stack: Iterable[Layered] | Layered, /) -> LayersReport:
    """Return what a stack of retry layers can do in the worst case.

    Args:
        stack: The layers, outermost first: a `Layer`, a `Retry`, a decorated function, a
            `SendBuffer`, the options of a gRPC channel, or a list of these.

    Returns:
        The report.

    Raises:
        ValueError: The stack is empty.
        TypeError: An element is not a layer.
    """
    found = _named(tuple(_left(tuple(_flat(stack)))))
    if not found:
        raise ValueError("a stack needs at least one layer")
    known = worst(found)
    fields = {name: getattr(known, name) for name in Worst.__dataclass_fields__}
    return LayersReport(**fields, advice=advise(found, known))


def _flat(given: Layered) -> Iterable[Layer]:
    if isinstance(given, Layer):
        yield given
    elif isinstance(given, Retry):
        yield Layer.of(given)
    elif isinstance(getattr(given, "__redrive__", None), Retry):
        yield from _decorated(given)
    elif are_options(given):
        yield Layer.of_channel(given)
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        for one in given:
            yield from _flat(one)
    else:
        raise TypeError(
            f"a layer must be a Retry, a function decorated with one, or a Layer, not {type(given).__name__} {given!r}; "
            f"pass one of these, or a list of them with the outermost first"
        )


def _left(stack: tuple[Layer, ...]) -> Iterable[Layer]:
    """Each layer with the errors that are left to it: one of Redrive's leaves a code to a layer around that claims it."""
    claimed: set[Any] = set()
    for layer in stack:
        if not claimed or not layer.ours or layer.on is None:
            yield layer
        elif on := tuple(error for error in layer.on if error not in claimed):
            yield replace(layer, on=on)
        else:
            yield replace(layer, policy=replace(layer.policy or SERVICE, max_attempts=1))
        if layer.claims:
            claimed |= set(layer.errors)


def _decorated(function: Any) -> Iterable[Layer]:
    while function is not None:
        inner = getattr(function, "__wrapped__", None)
        for name in ("__redrive__", "retry"):
            found = getattr(function, name, None)
            # A wrapper copies the attributes of what it wraps: one that the function inside has too is that one's.
            if found is None or found is getattr(inner, name, None):
                continue
            if isinstance(found, Retry):
                yield Layer.of(found)
            elif type(found).__module__.partition(".")[0] == "tenacity":
                yield _tenacity(function, found)
        function = inner


def _tenacity(function: Any, retrying: Any) -> Layer:
    """A layer of tenacity's in the same chain; its waits are not read."""
    attempts = getattr(retrying.stop, "max_attempt_number", None)
    if not isinstance(attempts, int):
        raise ValueError(
            f"the attempts of tenacity for {function.__qualname__} cannot be read from {retrying.stop!r}; pass the stack as a "
            f"list of layers, with its max_attempts"
        )
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0, jitter=0)
    return Layer(f"tenacity of {function.__qualname__}", policy=policy, by="tenacity", seen=False if retrying.reraise else None)


def _named(stack: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """A name for each: those around one function share its name otherwise."""
    twice = {name for name, count in Counter(layer.name for layer in stack).items() if count > 1}
    numbers: Counter[str] = Counter()
    found = []
    for layer in stack:
        numbers[layer.name] += 1
        found.append(replace(layer, name=f"{layer.name} #{numbers[layer.name]}") if layer.name in twice else layer)
    return tuple(found)
