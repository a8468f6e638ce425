"""The ledger: jobs, leases, dead letters and idempotency records, on SQLite and Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .open import open_ledger

if TYPE_CHECKING:
    from .aio import AsyncLedger as AsyncLedger
    from .db.caller_transaction import Transaction as Transaction
    from .db.schema import include_name as include_name
    from .dead_letter import DeadLetter as DeadLetter
    from .ledger import Ledger as Ledger
    from .model import Attempt as Attempt
    from .model import Entry as Entry
    from .model import Job as Job
    from .model import Lease as Lease
    from .model import NewJob as NewJob
    from .model import Settlement as Settlement
    from .model import Submitted as Submitted
    from .model import Tally as Tally
    from .model import Turn as Turn

_RECORDS = (
    *("Attempt", "Entry", "Job", "Lease", "NewJob", "Settlement"),
    *("Submitted", "Tally", "Turn"),
)
_HOMES = {
    "AsyncLedger": "aio",
    "DeadLetter": "dead_letter",
    "Transaction": "db.caller_transaction",
    "Ledger": "ledger",
    "include_name": "db.schema",
    **dict.fromkeys(_RECORDS, "model"),
}
__all__ = ["open_ledger", *_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # otherwise a type checker would accept every misspelt name
    # Only `open_ledger` can report a missing extra.
    __getattr__ = lazily(__name__, _HOMES)
