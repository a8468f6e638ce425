"""Stacks: what tries again in an app: of each kind its durable attempts, and the layers of its function in process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..app import App
from ..engine.layer import Layer
from ..engine.layers import LayersReport
from ..engine.layers import layers as analysed
from ..worker.kind import Kind
from .source import Operated


@dataclass(frozen=True, slots=True)
class Stack:
    """What tries again for one kind."""

    kind: str
    durable: LayersReport
    """Attempts by workers, minutes to days apart: another time scale, which multiplies nothing."""
    inside: LayersReport | None
    """In process, within each of these attempts; None: the function itself does not try again."""


def stacks(app: Operated, /) -> list[Stack]:
    """Of every kind that is registered, by name. Nothing is known of a bare ledger, or of an app where nothing is registered."""
    if not isinstance(app, App):
        return []
    try:
        kinds = app.kinds()
    except ValueError:  # nothing is registered
        return []
    return sorted((Stack(kind.name, _durable(kind), _inside(kind.fn)) for kind in kinds), key=lambda stack: stack.kind)


def _durable(kind: Kind) -> LayersReport:
    settings = kind.settings
    backoff = None if settings.backoff == settings.policy.wait else settings.backoff
    timeout: Any = "none" if settings.attempt_timeout is None else settings.attempt_timeout
    return analysed(Layer(kind.name, policy=settings.policy, backoff=backoff, attempt_timeout=timeout))


def _inside(fn: Callable[..., Any] | None) -> LayersReport | None:
    try:
        return None if fn is None or not hasattr(fn, "__redrive__") else analysed(fn)
    except (TypeError, ValueError):  # a stack that cannot be read from the function says so at `redrive layers`
        return None
