"""Backfills: planned and started on a page and by the API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from redrive import App
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.key import parse_day
from redrive.partitions.retry_schedule import DatasetLimits
from tests.conformance.partitions.world import World

from .browser import client

RANGE = {"source": "crm", "query": "orders", "since": "2026-01-01", "until": "2026-01-03"}


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[TestClient]:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=True) as app:
        first = parse_day("since", "2025-12-31")
        control = ControlPlane(app.ledger, [DatasetLimits("crm", "orders")])
        control.requeue_next(control.backfill(Grid("crm", "orders", ("c-1",), first, first), actor="ann", because="the first").id)
        control.claim(1, worker="w")  # now a partition exists, and the dataset is known
        yield client(app)


@pytest.mark.req("O-2", "O-4")
def test_a_backfill_is_planned_on_a_page_and_started_with_a_reason(browser: TestClient) -> None:
    query = {**RANGE, "act": "backfill", "customer": "c-1", "share": "40"}
    page = browser.get("/partitions/plan", params=query)
    assert page.status_code == 200
    assert "Backfill 3 partitions?" in page.text
    line = "redrive backfill apply crm/orders --since 2026-01-01 --until 2026-01-03 --customer-id c-1 --share 0.4 --because"
    assert line in page.text
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text.partition("partitions/apply")[2]))
    assert browser.post("/partitions/apply", data=form | {"because": "history", "typed": "2"}).status_code == 422
    begun = browser.post("/partitions/apply", data=form | {"because": "history", "typed": "3"})
    assert (begun.status_code, begun.headers["location"]) == (303, "/sweeps/2")
    shown = browser.get("/sweeps/2").text
    assert "40% of worker capacity" in shown
    assert "no worker online" in shown
    assert "has some of these partitions" in browser.get("/partitions/plan", params=query).text


def test_the_api_checks_customers_maximum_and_digest(browser: TestClient) -> None:
    csrf = re.search(r'name="csrf" content="([^"]+)"', browser.get("/partitions").text)
    assert csrf is not None
    browser.headers["x-csrf-token"] = csrf[1]
    refused = browser.post("/api/backfills/plan", json=RANGE).json()["detail"]
    assert "are unknown to the ledger" in refused
    body = {**RANGE, "customers": ["c-1"], "share": 0.2}
    planned = browser.post("/api/backfills/plan", json=body).json()
    assert (planned["act"], planned["count"]) == ("backfill", 3)
    because = {"because": "history", "seen": planned["digest"]}
    assert browser.post("/api/backfills", json=body | because | {"max": 2}).status_code == 409
    assert browser.post("/api/backfills", json=body | because | {"max": 3, "share": 0.3}).status_code == 409, "the plan differs"
    assert browser.post("/api/backfills", json=body | because | {"max": 3}).json()["total"] == 3


@pytest.mark.parametrize("wrong", [{"since": ""}, {"query": ""}, {"share": "much"}])
def test_an_incomplete_backfill_is_an_invalid_request(browser: TestClient, wrong: dict[str, str]) -> None:
    answer = browser.get("/partitions/plan", params={**RANGE, "act": "backfill", "customer": "c-1", **wrong})
    assert answer.status_code == 422
    assert "incomplete range" in answer.text or "nvalid share" in answer.text


@pytest.mark.req("O-4", "P-14")
def test_pages_show_schedules_and_missing_customers_of_a_dataset(tmp_path: Path) -> None:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=True, stores={"raw": {"type": "memory"}}) as app:
        options: Any = {"raw": "raw", "customers": ["c-1", "c-2", "c-3"], "checks": []}

        @app.dataset("crm", "orders", cron="0 2 * * *", timezone="Europe/Prague", **options)
        def orders(partition: Any, out: Any) -> None: ...

        first = parse_day("since", "2025-12-31")
        world = World(app.ledger)
        world.control.backfill(Grid.of("crm", "orders", ["c-1"], first), actor="ann", because="one of three")
        world.accept(*world.claim())
        browser = client(app)
        page = browser.get("/schedules").text
        assert "0 2 * * * Europe/Prague" in page
        assert 'href="/partitions?source=crm&amp;query=orders"' in page
        assert "no worker online" in page
        page = browser.get("/partitions", params={"since": str(first), "until": str(first)}).text
        assert f'class="m" title="{first}: 1 accepted, 2 never requested"' in page
        assert "accepted, some customers never requested" in page
        (schedule,) = browser.get("/api/schedules").json()
        assert (schedule["kind"], schedule["of"], schedule["source"]) == ("crm/orders", "dataset", "crm")
