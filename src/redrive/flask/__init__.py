"""Redrive in Flask: requests with an Idempotency-Key run once for each user.

Extra: `flask`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .idempotency import Idempotency as Idempotency

__all__ = ["Idempotency"]

if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    __getattr__ = lazily(__name__, {"Idempotency": "idempotency"})
