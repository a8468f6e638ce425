"""Retries, idempotency keys and durable background jobs for Python."""

from __future__ import annotations

from .core.version import VERSION

TYPE_CHECKING = False  # importing it from typing takes 10 ms; type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from . import backoff as backoff
    from . import batch as batch
    from . import errors as errors
    from . import grpc as grpc
    from . import http as http
    from . import journal as journal
    from . import messages as messages
    from . import native as native
    from . import ops as ops
    from . import partitions as partitions
    from . import storage as storage
    from . import testing as testing
    from .analysis.layer import Layer as Layer
    from .analysis.report import LayersReport as LayersReport
    from .analysis.report import layers as layers
    from .app import App as App
    from .commands.command import Command as Command
    from .commands.job import Job as Job
    from .core.breaker import Breaker as Breaker
    from .core.budget import Budget as Budget
    from .core.classification.classify import classify as classify
    from .core.fault import Fault as Fault
    from .core.key import Key as Key
    from .core.outage import Parking as Parking
    from .core.policy import RetryPolicy as RetryPolicy
    from .engine.attempt import Attempt as Attempt
    from .engine.attempt import correlate as correlate
    from .engine.attempt import current as current
    from .engine.attempt import deadline as deadline
    from .engine.nesting import Outcome as Outcome
    from .engine.nesting import outcome as outcome
    from .engine.retry import Retry as Retry
    from .engine.retry import acall as acall
    from .engine.retry import attempts as attempts
    from .engine.retry import call as call
    from .engine.retry import retry as retry
    from .engine.spill import Spilled as Spilled
    from .errors import Again as Again
    from .errors import Blocked as Blocked
    from .errors import Stop as Stop
    from .ledger.open import open_ledger as open_ledger
    from .messages.event import Event as Event
    from .temporal.engine import Temporal as Temporal

__version__ = VERSION

_HOMES = {
    "Again": "errors",
    "App": "app",
    "Attempt": "engine.attempt",
    "Blocked": "errors",
    "Breaker": "core.breaker",
    "Budget": "core.budget",
    "Command": "commands.command",
    "Event": "messages.event",
    "Fault": "core.fault",
    "Job": "commands.job",
    "Key": "core.key",
    "Layer": "analysis.layer",
    "LayersReport": "analysis.report",
    "Outcome": "engine.nesting",
    "Parking": "core.outage",
    "Retry": "engine.retry",
    "RetryPolicy": "core.policy",
    "Spilled": "engine.spill",
    "Stop": "errors",
    "Temporal": "temporal.engine",
    "acall": "engine.retry",
    "attempts": "engine.retry",
    "call": "engine.retry",
    "classify": "core.classification.classify",
    "correlate": "engine.attempt",
    "current": "engine.attempt",
    "deadline": "engine.attempt",
    "layers": "analysis.report",
    "open_ledger": "ledger.open",
    "outcome": "engine.nesting",
    "retry": "engine.retry",
}
_MODULES = frozenset(
    (
        "backoff",
        "batch",
        "errors",
        "grpc",
        "http",
        "journal",
        "messages",
        "native",
        "ops",
        "partitions",
        "storage",
        "testing",
    )
)
__all__ = [*_HOMES, *_MODULES, "__version__"]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # otherwise type checkers would accept every misspelt name

    def __getattr__(name: str) -> Any:
        # Names are loaded at first use, so `import redrive` alone is fast.
        from importlib import import_module  # noqa: PLC0415

        if name in _MODULES:
            return import_module(f".{name}", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
