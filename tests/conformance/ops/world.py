"""Shared by the tests of operators: dead letters."""

from __future__ import annotations

import json
from typing import Any

from redrive.ledger import Ledger, NewJob

SECRET = "hunter2-s3cret"
TIMEOUT = f"TimeoutError: read timed out, Authorization: Bearer {SECRET}"


def die(
    ledger: Ledger, *keys: str, kind: str = "crm.sync", reason: str = "attempts", error: str = TIMEOUT,
    signature: str | None = "TimeoutError", payload: Any = None, **fields: Any,
) -> list[int]:  # fmt: skip
    """Create dead letters with these keys, and return their ids."""
    content = {"user": "ann", "password": SECRET} if payload is None else payload
    stored = content if isinstance(content, bytes) else json.dumps(content).encode()
    ledger.submit_many([NewJob(kind, key, stored, **fields) for key in keys])
    leases = {lease.key: lease for lease in ledger.claim({kind: len(keys)}, worker="w1")}
    known = {letter.id for letter in ledger.dead_letters(limit=10_000)}
    ledger.settle([leases[key].dead(reason, error=error, signature=signature) for key in keys])
    return [letter.id for letter in ledger.dead_letters(limit=10_000) if letter.id not in known]
