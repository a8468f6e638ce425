"""The durable heart: keys, jobs, attempts, leases and dead letters, on SQLite and Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .open import open_ledger

if TYPE_CHECKING:
    from .aio import AsyncLedger as AsyncLedger
    from .caller import Transaction as Transaction
    from .ledger import Ledger as Ledger
    from .record import Attempt as Attempt
    from .record import DeadLetter as DeadLetter
    from .record import Entry as Entry
    from .record import Job as Job
    from .record import Lease as Lease
    from .record import NewJob as NewJob
    from .record import Settlement as Settlement
    from .record import Submitted as Submitted
    from .record import Tally as Tally
    from .record import Turn as Turn

_HOMES = {
    "AsyncLedger": "aio",
    "Transaction": "caller",
    "Ledger": "ledger",
    **dict.fromkeys(
        ("Attempt", "DeadLetter", "Entry", "Job", "Lease", "NewJob", "Settlement", "Submitted", "Tally", "Turn"), "record"
    ),
}
__all__ = ["open_ledger", *_HOMES]  # noqa: PLE0604  # the names are listed once, above


def __getattr__(name: str) -> Any:
    # `open_ledger` alone can say what is missing where the extra is not installed.
    from importlib import import_module  # noqa: PLC0415

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = found
    return found
