"""layers: the report on a stack of retry layers, with its worst cases and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from ..core.policy import SERVICE, RetryPolicy
from ..engine.retry import Retry
from .advice import Advice, advise
from .grpc import is_channel_options
from .layer import Layer
from .worst_case import WorstCase, worst_case

Layered: TypeAlias = Any
"""A `Layer`, a `Retry`, a function that is decorated with one or several, a `SendBuffer`, or the
options of a gRPC channel."""


@dataclass(frozen=True, slots=True)
class LayersReport(WorstCase):
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
    flat = _with_unique_names(tuple(_without_claimed_codes(tuple(_flatten(stack)))))
    if not flat:
        raise ValueError("a stack needs at least one layer")
    worst = worst_case(flat)
    fields = {name: getattr(worst, name) for name in WorstCase.__dataclass_fields__}
    return LayersReport(**fields, advice=advise(flat, worst))


def _flatten(stack: Layered) -> Iterable[Layer]:
    if isinstance(stack, Layer):
        yield stack
    elif isinstance(stack, Retry):
        yield Layer.of(stack)
    elif isinstance(getattr(stack, "__redrive__", None), Retry):
        yield from _layers_of_function(stack)
    elif is_channel_options(stack):
        yield Layer.of_channel(stack)
    elif isinstance(stack, Iterable) and not isinstance(stack, (str, bytes)):
        for element in stack:
            yield from _flatten(element)
    else:
        raise TypeError(
            "a layer must be a Retry, a function decorated with one, or a Layer, "
            f"not {type(stack).__name__} {stack!r}; "
            "pass one of these, or a list of them with the outermost first"
        )


def _without_claimed_codes(stack: tuple[Layer, ...]) -> Iterable[Layer]:
    """Remove codes from layers of Redrive that a layer around them claims."""
    claimed: set[Any] = set()
    for layer in stack:
        if not claimed or not layer.is_ours or layer.on is None:
            yield layer
        elif on := tuple(error for error in layer.on if error not in claimed):
            yield replace(layer, on=on)
        else:
            yield replace(layer, policy=replace(layer.policy or SERVICE, max_attempts=1))
        if layer.claims:
            claimed |= set(layer.errors)


def _layers_of_function(function: Any) -> Iterable[Layer]:
    while function is not None:
        inner = getattr(function, "__wrapped__", None)
        for name in ("__redrive__", "retry"):
            layer = getattr(function, name, None)
            # A wrapper copies the attributes of the function inside, which may be the layer's.
            if layer is None or layer is getattr(inner, name, None):
                continue
            if isinstance(layer, Retry):
                yield Layer.of(layer)
            elif type(layer).__module__.partition(".")[0] == "tenacity":
                yield _tenacity_layer(function, layer)
        function = inner


def _tenacity_layer(function: Any, retrying: Any) -> Layer:
    """Return a layer of tenacity. Its waits are not read."""
    attempts = getattr(retrying.stop, "max_attempt_number", None)
    if not isinstance(attempts, int):
        raise ValueError(
            f"the attempts of tenacity for {function.__qualname__} cannot be read from "
            f"{retrying.stop!r}; pass the stack as a list of layers, with its max_attempts"
        )
    return Layer(
        f"tenacity of {function.__qualname__}",
        policy=RetryPolicy(max_attempts=attempts, backoff_base=0, jitter=0),
        by="tenacity",
        seen=False if retrying.reraise else None,
    )


def _with_unique_names(stack: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Number layers of the same name, such as several around one function."""
    counts = Counter(layer.name for layer in stack)
    numbers: Counter[str] = Counter()
    named = []
    for layer in stack:
        numbers[layer.name] += 1
        if counts[layer.name] > 1:
            named.append(replace(layer, name=f"{layer.name} #{numbers[layer.name]}"))
        else:
            named.append(layer)
    return tuple(named)
