"""Operations on a ledger, as the command line and the console use them. One module for each noun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .metrics.collect import observe_ledger as observe_ledger
    from .metrics.collect import prometheus_endpoint as prometheus_endpoint
    from .operator import Operator as Operator
    from .plans.plan import Plan as Plan
    from .sweep import Sweep as Sweep

_HOMES = {
    "Operator": "operator",
    "Plan": "plans.plan",
    "Sweep": "sweep",
    "observe_ledger": "metrics.collect",
    "prometheus_endpoint": "metrics.collect",
}
__all__ = ["Operator", "Plan", "Sweep", "observe_ledger", "prometheus_endpoint"]

if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    __getattr__ = lazily(__name__, _HOMES)
