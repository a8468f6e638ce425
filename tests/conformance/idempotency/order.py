"""An order and its receipt, for requests that are repeated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal


@dataclass
class Order:
    user: str
    id: str
    cents: int = 100


@dataclass
class Receipt:
    number: int
    total: Decimal
    at: datetime


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
ORDER = Order("ann", "o-1")
TEMPLATE = "billing:{order.user}:{order.id}:charge:v1"
