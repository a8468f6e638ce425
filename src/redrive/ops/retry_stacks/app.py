"""Stacks: what tries again in an app: of each kind and dataset its durable attempts, and its function's layers in process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...analysis.layer import Layer
from ...analysis.report import LayersReport
from ...analysis.report import layers as analysed
from ...app import App
from ...engine.settings import RetrySettings
from ...worker.job_type import JobType
from ..partitions.datasets import extractions
from ..target.target import Operated


@dataclass(frozen=True, slots=True)
class Stack:
    """What tries again for one kind, or for one dataset."""

    kind: str
    """Of a dataset: its name, such as crm/orders."""
    durable: LayersReport
    """Attempts by workers, minutes to days apart: another time scale, which multiplies nothing."""
    inside: LayersReport | None
    """In process, within each of these attempts; None: the function itself does not try again."""


def stacks(app: Operated, /) -> list[Stack]:
    """Of every kind and dataset that is registered, by name. Nothing is known of a bare ledger, or of an app without any."""
    if not isinstance(app, App):
        return []
    kinds: Sequence[JobType] = ()
    try:
        kinds = app.kinds()
    except ValueError:  # no command is registered, and no handler
        pass
    found = [Stack(kind.name, _durable(kind.name, kind.settings), _inside(kind.fn)) for kind in kinds]
    found += [Stack(one.name, _durable(one.name, one.settings), _inside(one.fn)) for one in extractions(app)]
    return sorted(found, key=lambda stack: stack.kind)


def _durable(name: str, settings: RetrySettings) -> LayersReport:
    backoff = None if settings.backoff == settings.policy.wait else settings.backoff
    timeout: Any = "none" if settings.attempt_timeout is None else settings.attempt_timeout
    policy = replace(settings.policy, timeout=None)  # workers do not read it
    return analysed(Layer(name, policy=policy, backoff=backoff, attempt_timeout=timeout))


def _inside(fn: Callable[..., Any] | None) -> LayersReport | None:
    try:
        return None if fn is None or not hasattr(fn, "__redrive__") else analysed(fn)
    except (TypeError, ValueError):  # a stack that cannot be read from the function says so at `redrive layers`
        return None
