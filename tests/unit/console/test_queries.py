"""The queries of lists: parsing, invalid values, and time ranges on pages and in the API."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from fastapi.testclient import TestClient

from redrive import App
from redrive.console.queries import DeadLetterListQuery, PartitionQuery

from .browser import client

LATER = "2100-01-01T00:00:00Z"
LISTS = [
    "/dead",
    "/failures",
    "/audit",
    "/api/dead",
    "/api/dead/groups",
    "/api/failures",
    "/api/failures/partitions",
    "/api/audit",
]


def test_a_blank_field_is_not_set() -> None:
    query = DeadLetterListQuery.read({"kind": " crm.sync ", "error": " ", "unknown": "x"})
    assert (query.kind, query.error, query.status) == ("crm.sync", None, "pending")


def test_a_time_is_a_timestamp_or_a_duration() -> None:
    query = DeadLetterListQuery.read({"since": "2026-01-31T12:30", "until": "1h"})
    assert query.since == datetime(2026, 1, 31, 12, 30, tzinfo=timezone.utc)
    assert query.until is not None
    assert datetime.now(timezone.utc) - query.until < timedelta(hours=2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"since": "yesterday"}, "invalid time 'yesterday': use 90s, 30min"),
        ({"since": "1h", "until": "2h"}, "it is not after since"),
        ({"status": "lost"}, "invalid status 'lost': use pending, replaying, replayed, discarded or all"),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeadLetterListQuery.read(fields)


def test_a_list_ignores_invalid_fields_and_reports_them() -> None:
    query, error = DeadLetterListQuery.read_valid({"kind": "crm.sync", "since": "yesterday"})
    assert (query.kind, query.since) == ("crm.sync", None)
    assert error is not None
    assert "invalid time" in error


def test_a_query_selects_partitions() -> None:
    selection = PartitionQuery.read({"source": "crm", "customer": "c-1", "since": "2026-01-31"}).select()
    assert (selection.source, selection.customers, str(selection.since)) == ("crm", ("c-1",), "2026-01-31")
    with pytest.raises(ValueError, match="since='2026-02-30' is not a valid date"):
        PartitionQuery.read({"since": "2026-02-30"})


@pytest.fixture
def console(app: App) -> TestClient:
    return client(app)


@pytest.mark.parametrize("path", LISTS)
def test_lists_take_until(console: TestClient, path: str) -> None:
    everything, nothing = (console.get(path, params={"until": time}) for time in (LATER, "1h"))
    assert (everything.status_code, nothing.status_code) == (200, 200)
    if path.startswith("/api/dead"):
        assert (len(everything.json()), nothing.json()) == (1, [])


def test_a_plan_excludes_dead_letters_after_until(console: TestClient) -> None:
    plan = {"act": "replay", "kind": "crm.sync"}
    assert "Replay 1 dead letter?" in console.get("/dead/plan", params={**plan, "until": LATER}).text
    assert "Replay 0 dead letters?" in console.get("/dead/plan", params={**plan, "until": "1h"}).text
    assert console.get("/api/dead/plan", params={**plan, "until": "1h"}).json()["count"] == 0


def test_an_invalid_time_is_a_note_on_a_page_and_an_error_in_the_api(console: TestClient) -> None:
    page = console.get("/dead?since=yesterday&kind=crm.sync")
    assert (page.status_code, "Invalid time" in page.text) == (200, True)
    assert console.get("/api/dead?since=yesterday").status_code == 422
    assert console.get("/dead/plan?act=replay&kind=crm.sync&since=yesterday").status_code == 422
