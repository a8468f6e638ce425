"""Temporal: an engine that runs commands as standalone activities. Extra: `temporal`."""

from __future__ import annotations

from .engine import Temporal

__all__ = ["Temporal"]
