"""The tenants of a job type: the section of the page, and the REST API."""

from __future__ import annotations

import re

import pytest

from redrive import App
from redrive.ledger import NewJob
from redrive.ledger.jobs import tenants

from .browser import client

pytestmark = pytest.mark.req("Q-6")


@pytest.fixture
def busy(app: App) -> App:
    """Three tenants, of which one runs a job. One has a name that pages must escape."""
    for tenant, count in (("ann", 3), ("<b>ben</b>", 2), ("cleo", 1)):
        app.ledger.submit_many([NewJob("mail.send", f"{tenant}-{number}", tenant=tenant) for number in range(count)])
    app.ledger.submit(NewJob("reports", "r-1"))
    app.ledger.claim({"mail.send": 1}, worker="w", fair=True)
    return app


def rows(page: str) -> list[tuple[str, ...]]:
    """Return the rows of the section, without its head."""
    section = re.search(r"<h2>Tenants</h2>(.*?)</section>", page, re.DOTALL)
    assert section is not None
    return [tuple(re.findall(r"<td[^>]*>(.*?)</td>", row)) for row in re.findall(r"<tr>(.*?)</tr>", section[1])[1:]]


def test_the_list_of_a_job_type_counts_its_tenants(busy: App) -> None:
    page = client(busy).get("/jobs", params={"kind": "mail.send"}).text
    assert rows(page) == [("ann", "3", "0"), ("&lt;b&gt;ben&lt;/b&gt;", "1", "1"), ("cleo", "1", "0")]
    assert "redrive jobs tenants mail.send" in page
    assert "are counted" not in page


def test_a_list_without_tenants_has_no_section(busy: App) -> None:
    browser = client(busy)
    for query in ({}, {"kind": "reports"}, {"kind": "unknown"}):
        assert "<h2>Tenants</h2>" not in browser.get("/jobs", params=query).text


def test_the_page_reports_when_not_all_jobs_are_counted(busy: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "MAX_QUEUED", 2)
    page = client(busy).get("/jobs", params={"kind": "mail.send"}).text
    assert "Only the 1,000 that are due first are counted." in page


def test_the_page_of_a_job_shows_its_tenant(busy: App) -> None:
    (job, *_) = busy.ledger.jobs("leased")
    page = client(busy).get(f"/jobs/{job.id}").text
    assert '<dt>Tenant</dt><dd class="mono">&lt;b&gt;ben&lt;/b&gt;</dd>' in page


def test_the_api_counts_tenants(busy: App) -> None:
    browser = client(busy)
    response = browser.get("/api/jobs/tenants", params={"kind": "mail.send", "limit": 2})
    assert response.status_code == 200
    assert response.json() == {
        "kind": "mail.send",
        "tenants": [
            {"tenant": "ann", "queued": 3, "running": 0},
            {"tenant": "<b>ben</b>", "queued": 1, "running": 1},
        ],
        "is_cut": False,
    }
    assert browser.get("/api/jobs/tenants", params={"kind": "unknown"}).json()["tenants"] == []


@pytest.mark.parametrize("query", [{}, {"kind": ""}, {"kind": "mail.send", "limit": 0}, {"kind": "mail.send", "limit": 1001}])
def test_the_api_rejects_an_invalid_query(busy: App, query: dict[str, object]) -> None:
    assert client(busy).get("/api/jobs/tenants", params=query).status_code == 422  # type: ignore[arg-type]
