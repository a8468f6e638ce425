"""The ledger: jobs, attempts, leases, dead letters and idempotency records, on SQLite and Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .open import open_ledger

if TYPE_CHECKING:
    from .aio import AsyncLedger as AsyncLedger
    from .db.caller_transaction import Transaction as Transaction
    from .db.schema import include_name as include_name
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
    "Transaction": "db.caller_transaction",
    "Ledger": "ledger",
    "include_name": "db.schema",
    **dict.fromkeys(
        ("Attempt", "DeadLetter", "Entry", "Job", "Lease", "NewJob", "Settlement", "Submitted", "Tally", "Turn"), "record"
    ),
}
__all__ = ["open_ledger", *_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # `open_ledger` alone can say what is missing where the extra is not installed.
    __getattr__ = lazily(__name__, _HOMES)
