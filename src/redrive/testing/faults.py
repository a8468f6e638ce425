"""Injected faults: the next attempts of a call fail, without mocks and without patching."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeAlias

from ..core.context import SIMULATION, ScopeLayer, Simulation, clock_around, simulate
from ..core.text import pluralise
from ..engine.retry import Retry
from ..engine.settings import RetrySettings

InjectedOutcome: TypeAlias = BaseException | type[BaseException] | None
"""The error of an attempt. None: the attempt is made."""


class HasRetry(Protocol):
    """A client or a transport with a retry layer."""

    @property
    def __redrive__(self) -> Retry:
        """The retry layer."""


Target: TypeAlias = Callable[..., Any] | Retry | HasRetry | str


class Injected:
    """The faults of `inject`."""

    def __init__(self, outcomes: tuple[InjectedOutcome, ...]) -> None:
        self._outcomes = list(outcomes)
        self.calls = 0
        """Attempts made in the block, the failed ones included."""

    @property
    def left(self) -> int:
        """Number of faults that no attempt has met yet."""
        return len(self._outcomes)

    def attempt(self) -> None:
        """Count an attempt, and raise the error that was injected for it."""
        self.calls += 1
        error = self._outcomes.pop(0) if self._outcomes else None
        if error is not None:
            raise error

    @property
    def has_unused_errors(self) -> bool:
        """Whether an error is left that no attempt has met."""
        return any(error is not None for error in self._outcomes)


@contextmanager
def inject(target: Target, /, *outcomes: InjectedOutcome) -> Iterator[Injected]:
    """Make the next attempts of a target fail, then let it work.

    It applies to this context only, like `instant`.

    Args:
        target: A retried function, a `Retry`, a client, or the name of an operation.
        outcomes: One for each attempt: an exception or its type is raised instead of the call. None
            lets it through.

    Yields:
        The faults.
    """
    for error in outcomes:
        is_type = isinstance(error, type) and issubclass(error, BaseException)
        if error is not None and not isinstance(error, BaseException) and not is_type:
            raise TypeError(f"a fault is an exception, its type, or None, not {error!r}")
    matches = _matcher(target)
    injected = Injected(outcomes)
    outer = SIMULATION.get() or Simulation(clock_around(), None, None)

    def add_faults(layer: ScopeLayer, fn: Callable[..., Any]) -> Callable[..., Any]:
        inner = fn if outer.faults is None else outer.faults(layer, fn)
        return _with_faults(inner, injected) if matches(layer) else inner

    with simulate(Simulation(clock_around(), outer.draw, add_faults, ledger=outer.ledger)):
        yield injected
    if injected.has_unused_errors:
        attempts = pluralise(injected.calls, "attempt")
        failures = pluralise(len(outcomes), "injected failure")
        raise AssertionError(
            f"{injected.left} of {failures} not used: {_name(target)} made {attempts}"
        )


def _matcher(target: object) -> Callable[[ScopeLayer], bool]:
    if isinstance(target, str):
        return lambda layer: layer.operation == target
    retry = target if isinstance(target, Retry) else getattr(target, "__redrive__", None)
    if not isinstance(retry, Retry):
        raise TypeError(
            "inject needs a function decorated with @retry, a Retry, a client or the name of an "
            f"operation; {_name(target)} is none of them"
        )

    def matches(layer: ScopeLayer) -> bool:
        is_derived = isinstance(layer, RetrySettings) and retry in layer.origins
        return layer is retry.settings or is_derived

    return matches


def _name(target: object) -> str:
    if isinstance(target, str):
        return target
    name = getattr(target, "__qualname__", None)
    return repr(target) if name is None else f"{getattr(target, '__module__', '')}.{name}"


def _with_faults(fn: Callable[..., Any], injected: Injected) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(fn):

        @wraps(fn)
        async def attempt_async(*args: Any, **kwargs: Any) -> Any:
            injected.attempt()
            return await fn(*args, **kwargs)

        return attempt_async

    @wraps(fn)
    def attempt(*args: Any, **kwargs: Any) -> Any:
        injected.attempt()
        return fn(*args, **kwargs)

    return attempt
