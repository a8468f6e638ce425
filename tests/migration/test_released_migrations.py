"""Released migrations never change: a ledger that ran one would differ from a new ledger."""

from __future__ import annotations

import hashlib

import pytest

from redrive.ledger.db.schema import MIGRATIONS

RELEASED = {
    "0001_jobs.py": "9b7693fab902bc82",
    "0002_keys.py": "5785778d9e19555b",
    "0003_sweeps.py": "baf8a9509b7a78dc",
    "0004_parking.py": "1c55e8e0844201d5",
    "0005_items.py": "41c61e7f6d9d14f5",
    "0006_events.py": "ca652eb4d274a5aa",
    "0007_partitions.py": "a2ecd2134aaecfe7",
    "0008_failures.py": "88c61f2999ae5df9",
    "0009_rates.py": "4f7fa787ac052ba7",
    "0010_events_in_order.py": "7f0dac63a9584ace",
    "0011_failures_together.py": "14f2930a82ac1d33",
    "0012_tokens.py": "9eca2a7005f7853b",
    "0013_hidden_names.py": "165e1e47f61d76e7",
    "0014_items_given_up.py": "72e7105068bfab82",
}
"""SHA-256 of each file, its first 16 digits. Add a line with a release, and never change one."""


@pytest.mark.req("B-11")
@pytest.mark.parametrize("name", RELEASED)
def test_a_released_migration_is_unchanged(name: str) -> None:
    digest = hashlib.sha256((MIGRATIONS / "versions" / name).read_bytes()).hexdigest()
    assert digest[:16] == RELEASED[name], f"restore {name}, and write a new migration"
