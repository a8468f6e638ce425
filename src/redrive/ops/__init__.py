"""Operations on a ledger, as the command line and the console use them.

One module for each noun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from ..ledger.filters import JobFilter as JobFilter
    from ..ledger.sweep import Sweep as Sweep
    from .dead_letters.model import DeadLetterFilter as DeadLetterFilter
    from .metrics import observe_ledger as observe_ledger
    from .metrics import prometheus_endpoint as prometheus_endpoint
    from .operator import Operator as Operator
    from .plans.plan import Plan as Plan

_HOMES = {
    "DeadLetterFilter": "dead_letters.model",
    "JobFilter": ".ledger.filters",
    "Operator": "operator",
    "Plan": "plans.plan",
    "Sweep": ".ledger.sweep",
    "observe_ledger": "metrics",
    "prometheus_endpoint": "metrics",
}
__all__ = [
    "DeadLetterFilter",
    "JobFilter",
    "Operator",
    "Plan",
    "Sweep",
    "observe_ledger",
    "prometheus_endpoint",
]

if not TYPE_CHECKING:  # A type checker that saw this would accept every misspelt name.
    __getattr__ = lazily(__name__, _HOMES)
