"""App: the root object with the ledger and the registered functions, facet by facet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .app import App as App
    from .ledgered import DEFAULT as DEFAULT
    from .ledgered import VARIABLE as VARIABLE

_HOMES = {"App": "app", "DEFAULT": "ledgered", "VARIABLE": "ledgered"}
__all__ = ["DEFAULT", "VARIABLE", "App"]

if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    __getattr__ = lazily(__name__, _HOMES)
