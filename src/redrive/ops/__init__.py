"""Operations on a ledger, as the command line and the console use them.

One module for each noun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from .dead_letters.model import DeadLetterFilter as DeadLetterFilter
    from .metrics.collect import observe_ledger as observe_ledger
    from .metrics.collect import prometheus_endpoint as prometheus_endpoint
    from .operator import Operator as Operator
    from .plans.plan import Plan as Plan
    from .sweeps import Sweep as Sweep

_HOMES = {
    "DeadLetterFilter": "dead_letters.model",
    "Operator": "operator",
    "Plan": "plans.plan",
    "Sweep": "sweeps",
    "observe_ledger": "metrics.collect",
    "prometheus_endpoint": "metrics.collect",
}
__all__ = ["DeadLetterFilter", "Operator", "Plan", "Sweep", "observe_ledger", "prometheus_endpoint"]

if not TYPE_CHECKING:  # A type checker that saw this would accept every misspelt name.
    __getattr__ = lazily(__name__, _HOMES)
