"""Faults to order: make the next attempts of a call fail, without a mock and without patching a name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeAlias

from ..core.context import SIMULATION, Layer, Simulation, clock_around, simulated
from ..core.text import pluralise
from ..engine.retry import Retry
from ..engine.settings import Settings

Ordered: TypeAlias = BaseException | type[BaseException] | None
"""What an attempt does: raise this, or (None) go through."""


class Layered(Protocol):
    """A client, a transport: what has a retry layer of ours."""

    @property
    def __redrive__(self) -> Retry:
        """Its layer."""


Target: TypeAlias = Callable[..., Any] | Retry | Layered | str


class Injected:
    """The faults of `inject`."""

    def __init__(self, outcomes: tuple[Ordered, ...]) -> None:
        self._outcomes = list(outcomes)
        self.calls = 0
        """Attempts made in the block, the failed ones included."""

    @property
    def left(self) -> int:
        """Number of faults that no attempt has met yet."""
        return len(self._outcomes)

    def attempt(self) -> None:
        """One attempt begins; raises where a fault was ordered for it."""
        self.calls += 1
        ordered = self._outcomes.pop(0) if self._outcomes else None
        if ordered is not None:
            raise ordered


@contextmanager
def inject(target: Target, /, *outcomes: Ordered) -> Iterator[Injected]:
    """Make the next attempts of a target fail, then let it work.

    It applies to this context only, like `instant`.

    Args:
        target: A retried function, a `Retry`, a client, or the name of an operation.
        outcomes: One for each attempt: an exception or its type is raised instead of the call. None
            lets it through.

    Yields:
        The faults.
    """
    for ordered in outcomes:
        if ordered is not None and not isinstance(ordered, BaseException) and not _is_exception(ordered):
            raise TypeError(f"a fault is an exception, its type, or None, not {ordered!r}")
    matches = _matcher(target)
    injected = Injected(outcomes)
    around = SIMULATION.get()

    def faults(layer: Layer, fn: Callable[..., Any]) -> Callable[..., Any]:
        inner = fn if around is None or around.faults is None else around.faults(layer, fn)
        return _failing(inner, injected) if matches(layer) else inner

    here = around is not None and around.ledger
    with simulated(Simulation(clock_around(), None if around is None else around.draw, faults, ledger=here)):
        yield injected
    if any(ordered is not None for ordered in injected._outcomes):
        made = f"{_name(target)} made {pluralise(injected.calls, 'attempt')}"
        raise AssertionError(f"{injected.left} of {pluralise(len(outcomes), 'injected failure')} not used: {made}")


def _is_exception(ordered: object) -> bool:
    return isinstance(ordered, type) and issubclass(ordered, BaseException)


def _matcher(target: object) -> Callable[[Layer], bool]:
    if isinstance(target, str):
        return lambda layer: layer.operation == target
    retry = target if isinstance(target, Retry) else getattr(target, "__redrive__", None)
    if not isinstance(retry, Retry):
        raise TypeError(
            "inject needs a function decorated with @retry, a Retry, a client or the name of an operation; "
            f"{_name(target)} is none of them"
        )
    return lambda layer: layer is retry.settings or (isinstance(layer, Settings) and retry in layer.origins)


def _name(target: object) -> str:
    if isinstance(target, str):
        return target
    name = getattr(target, "__qualname__", None)
    return repr(target) if name is None else f"{getattr(target, '__module__', '')}.{name}"


def _failing(fn: Callable[..., Any], injected: Injected) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(fn):

        @wraps(fn)
        async def later(*args: Any, **kwargs: Any) -> Any:
            injected.attempt()
            return await fn(*args, **kwargs)

        return later

    @wraps(fn)
    def at_once(*args: Any, **kwargs: Any) -> Any:
        injected.attempt()
        return fn(*args, **kwargs)

    return at_once
