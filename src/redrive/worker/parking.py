"""Parking: the figures of the outage rule, under their public import path. `core/outage.py` has the rule."""

from __future__ import annotations

from ..core.outage import WINDOW, Parking

__all__ = ["WINDOW", "Parking"]
