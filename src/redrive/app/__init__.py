"""App: the root object that holds the ledger and the registered functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .app import App as App
    from .ledger_opener import DEFAULT as DEFAULT
    from .ledger_opener import VARIABLE as VARIABLE

_HOMES = {"App": "app", "DEFAULT": "ledger_opener", "VARIABLE": "ledger_opener"}
__all__ = ["DEFAULT", "VARIABLE", "App"]

if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    __getattr__ = lazily(__name__, _HOMES)
