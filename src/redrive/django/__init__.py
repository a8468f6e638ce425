"""Redrive in Django: requests with an Idempotency-Key run once for each user.

Extra: `django`. Inside this package, `import django` is Django itself: imports are absolute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .idempotency import IdempotencyMiddleware as IdempotencyMiddleware

__all__ = ["IdempotencyMiddleware"]

if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    __getattr__ = lazily(__name__, {"IdempotencyMiddleware": "idempotency"})
