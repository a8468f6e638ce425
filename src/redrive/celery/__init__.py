"""Celery: tasks that fail for good become dead letters, and are replayed. Extra: `celery`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .bridge import CeleryBridge as CeleryBridge
    from .bridge import connect as connect

_HOMES = {"CeleryBridge": "bridge", "connect": "bridge"}
__all__ = ["CeleryBridge", "connect"]

if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    __getattr__ = lazily(__name__, _HOMES)
