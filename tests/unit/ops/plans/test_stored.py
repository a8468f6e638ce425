"""Stored plans: for one database, and for any user of it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from redrive.errors import Drift
from redrive.ops.dead_letters.model import DeadLetterFilter
from redrive.ops.plans.plan import Plan
from redrive.ops.plans.stored import LIFE, StoredPlan

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)
PLAN = Plan("retry", (), {}, {}, {}, False, DeadLetterFilter())


@pytest.mark.req("O-2")
def test_a_plan_can_be_applied_by_another_user() -> None:
    stored = StoredPlan("p-1", PLAN, "ann", "postgresql://ann@db.example.com/lake", NOW, NOW + LIFE, "p-1.json")
    stored.check_current(NOW, "postgresql://ben@db.example.com:6432/lake")
    for url in ("postgresql://ann@db.example.com/staging", "postgresql://ann@other.example.com/lake", "sqlite:///lake"):
        with pytest.raises(Drift, match="plan p-1 is for"):
            stored.check_current(NOW, url)
    stored.check_current(NOW + LIFE - timedelta(seconds=1), stored.ledger)
    with pytest.raises(Drift, match="has expired"):
        stored.check_current(NOW + LIFE, stored.ledger)
