"""A ledger with jobs in every state, on a SQLite file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import App, correlate
from redrive.ledger import Ledger, NewJob, open_ledger
from tests.ledgers import sqlite_ledger
from tests.unit.cli.lake import lake

__all__ = ["lake"]

SECRET = "hunter2-s3cret"
KEY = "shop:ann:o-1:charge:v1"
LONG = "reports.nightly.customer_activity_summary_of_everything"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty ledger that the command finds automatically."""
    found = sqlite_ledger(tmp_path)
    monkeypatch.setenv("REDRIVE_LEDGER", found)
    return found


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


@pytest.fixture
def busy(ledger: Ledger) -> Ledger:
    """The same ledger in use: dead letters 1 to 12, with decisions on the first 3."""
    payload = json.dumps({"order": "o-1", "password": SECRET}).encode()
    headers = {"authorization": f"Bearer {SECRET}"}
    with correlate(request_id="r-1", user_id="ann"):
        for kind in ("crm.sync", LONG, "receipts.send"):
            ledger.submit_many([NewJob(kind, f"shop:ann:o-{each}:x:v1", payload, headers=headers) for each in range(10)])
    ledger.maintenance.heartbeat("web-7f9c:1201", {"app": "shop"})
    for kind in ("crm.sync", LONG):
        leases = ledger.claim({kind: 9}, worker="web-7f9c:1201")
        error = f"HTTPStatusError: 503 for https://ann:{SECRET}@crm.example.com/v1/contacts?api_key={SECRET}\nand more"
        ledger.settle([lease.dead("attempts", error=error, signature="HTTPStatusError") for lease in leases[:5]])
        ledger.settle([leases[5].blocked("the customer's credentials have expired", error="401"), leases[6].done()])
        ledger.settle(leases[7].again(600, error="slow down"))
    ledger.replay([1, 2], actor="ann", because="the CRM is back, INC-77")
    ledger.discard([3], actor="bob", because="a test order")
    ledger.sweeps.begin("replay", [11, 12, 3], actor="bob", because="the reports", canary=1, selection={"kind": LONG})
    ledger.sweeps.move(1, "pause", actor="bob", because="not before noon")
    with App(ledger) as app:
        with app.claim(KEY, request=b"x") as claim:
            claim.response = {"charge": 1, "token": SECRET}
        with pytest.raises(ValueError, match="declined"), app.claim("shop:bob:o-2:charge:v1"):
            raise ValueError("declined")
    return ledger
