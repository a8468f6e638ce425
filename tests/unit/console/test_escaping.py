"""Names, headers, errors and URLs with markup in them are shown as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from redrive import App, Event
from redrive.console import asgi
from redrive.console.view import NAVIGATION
from redrive.ledger import NewJob
from redrive.ledger.validation import MAX_PAYLOAD_BYTES
from redrive.partitions.control.plane import ControlPlane
from redrive.partitions.control.sweeps import Grid
from redrive.partitions.control.verdicts import VerdictWriter
from redrive.partitions.model import Verdict
from redrive.partitions.retry_schedule import DatasetLimits
from tests.unit.console.browser import HERE, let_in

ODD = """x' "><script>alert(1)</script><img src=y onerror=alert(2)><a href="javascript:alert(3)">{{ 7*7 }}"""
DAY = date(2026, 1, 31)
MAX_PAGES = 80
"""Pages whose links are followed."""
FILTERS = (
    "kind error reason status by event state source type domain user key batch customer query action anchor signature all "
    "of_source of_query from to said since until"
).split()


class PageReader(HTMLParser):
    """Collects unexpected markup, the text and the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.text: list[str] = []
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "img" or (tag == "script" and not (attributes.get("src") or "").startswith("/static/")):
            self.wrong.append(f"<{tag}>")
        self.wrong += [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc")]
        where = [attributes.get(name) or "" for name in ("href", "src", "action", "formaction")]
        self.wrong += [each for each in where if each and not each.startswith(("/", "#", "?"))]
        self.links |= {each for each in where[:1] if each.startswith("/") and tag == "a"}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with App(f"sqlite:///{tmp_path_factory.mktemp('odd') / 'ledger.db'}", migrate=True) as app:
        _work(app)
        _lake(app)
        console = asgi(app)
        yield TestClient(console, base_url=HERE, client=("127.0.0.1", 1), cookies=let_in(console, HERE))


def _work(app: App) -> None:
    ledger = app.ledger
    ledger.maintenance.heartbeat(ODD, {"threads": 1, "kinds": [ODD], "version": ODD, "state": ODD})
    job = NewJob(ODD, f"shop:{ODD}:1", json.dumps({ODD: ODD}).encode(), headers={ODD: ODD}, ids={"trace_id": ODD, "user_id": ODD})
    for number in range(3):
        ledger.submit(job._replace(key=f"{job.key}{number}"))
    for lease in ledger.claim({ODD: 1}, worker=ODD):
        ledger.settle(lease.dead(ODD, error=ODD, signature=ODD))
    app.receive(Event(ODD, {ODD: ODD}, id=ODD, source=ODD))
    items = app.items(ODD)
    items.increment_many([ODD])
    items.give_up_many({ODD: ODD})
    ledger.sweeps.begin("replay", [1], actor=ODD, because=ODD, rate=0.001)

    @app.once("billing:{user}:1:charge:v1")
    def charge(user: str) -> str:
        return ODD

    charge(ODD)


def _lake(app: App) -> None:
    terms = [DatasetLimits(ODD, ODD)]
    control, authority = ControlPlane(app.ledger, terms), VerdictWriter(app.ledger, terms)
    control.requeue_next(control.backfill(Grid(ODD, ODD, (ODD,), DAY, DAY), actor=ODD, because=ODD).id)
    for lease in control.claim(10, worker=ODD):
        check = {"name": ODD, "ok": False, "value": ODD, "limit": ODD, "detail": ODD}
        authority.apply([Verdict(lease.run_id, "rejected", reason=ODD, message=ODD, checks=[check], final=True)])
    control.pause_source(ODD, until=None, actor=ODD, because=ODD)


PAGES = [page.path for _, pages in NAVIGATION for page in pages]


def test_no_page_renders_stored_markup(browser: TestClient) -> None:
    seen: set[str] = set()
    met = 0
    todo = [*PAGES, *(f"{path}?{urlencode(dict.fromkeys(FILTERS, ODD))}" for path in PAGES), "/nothing/" + ODD]
    while todo:
        path = todo.pop()
        if path in seen or path.startswith("/static/"):
            continue
        seen.add(path)
        page = PageReader()
        answer = browser.get(path)
        assert answer.status_code in (200, 404, 409, 422), path
        page.feed(answer.text)
        assert page.wrong == [], path
        met += ODD in "".join(page.text)
        if len(seen) < MAX_PAGES:
            todo = sorted(page.links - seen) + todo
    assert met >= 15, "too few pages show the text"


def test_large_payloads_and_long_errors_do_not_make_a_large_page(browser: TestClient) -> None:
    ledger = browser.app.app.state.target.ledger  # type: ignore[attr-defined]
    job = ledger.submit(NewJob("large", "shop:ann:1:large:v1", json.dumps("y" * (MAX_PAYLOAD_BYTES - 100)).encode()))
    assert len(browser.get(f"/jobs/{job.id}").content) < 150_000
    assert "Showing 50,000 of" in browser.get(f"/jobs/{job.id}").text
    ledger.submit_many([NewJob("long", f"shop:ann:{number}:long:v1") for number in range(50)])
    ledger.settle([lease.dead("permanent", error="z" * 8000) for lease in ledger.claim({"long": 50}, worker="w")])
    assert len(browser.get("/dead?kind=long").content) < 150_000
