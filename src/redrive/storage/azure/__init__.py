"""Azure: blobs in a container."""

from __future__ import annotations

from .backend import Azure

__all__ = ["Azure"]
