"""App: the root that holds the ledger and what is registered to work from it, facet by facet."""

from __future__ import annotations

from .app import App
from .ledgered import DEFAULT, VARIABLE

__all__ = ["DEFAULT", "VARIABLE", "App"]
