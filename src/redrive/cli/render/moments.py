"""Moments, as both skins say and read them."""

from __future__ import annotations

from ...ops.render import ago, both, moment, utc

__all__ = ["ago", "both", "moment", "utc"]
