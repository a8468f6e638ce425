"""Rights by act and by job type: pages and the REST API refuse what an operator has no right for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from redrive import App, Event, current, journal
from redrive.console import Rights, User, asgi
from redrive.errors import MissingRight
from redrive.ledger import Ledger, NewJob
from redrive.ledger.audit import Actor
from redrive.ops import DeadLetterFilter, JobFilter, Operator
from redrive.ops.sign_in.rights import ACTS
from redrive.testing import sandbox
from tests.conformance.partitions.world import DAY, World
from tests.unit.cli.conftest import ledger, url
from tests.unit.cli.lake import lake

from ..browser import HERE, csrf
from .test_permissions import CHANGING, ROUTES

__all__ = ["lake", "ledger", "url"]
ORDERS = Rights(job_types={"orders.*"})
CARD = "zebra-4111"
BECAUSE: dict[str, Any] = {"because": "INC-42"}
PARTITION = {"source": "crm", "query": "orders", "since": "2026-01-01", "until": "2026-01-02", "customers": ["ann"]}
SELECTED = BECAUSE | {"ids": [1]}
FORMS: dict[str, dict[str, str]] = {
    "/dead/apply": {"act": "replay", "ids": "1"},
    "/dead/1/reveal": {},
    "/sweeps/1/1": {},
    "/controls/pause": {"scope": "job type", "name": "orders.sync"},
    "/controls/resume": {"scope": "job type", "name": "orders.sync"},
    "/controls/unpark": {"name": "orders.sync"},
    "/controls/limits": {"name": "orders.sync", "rate": "1"},
    "/controls/limits/reset": {"name": "orders.sync"},
    "/schedules/fire": {"name": "orders.sync"},
    "/jobs/apply": {"act": "cancel", "ids": "3"},
    "/events/replay": {"id": "p-1"},
    "/jobs/1/reveal": {},
    "/jobs/1/signal": {"name": "go"},
    "/batches/reopen": {"batch": "mail", "items": "a"},
    "/keys/release": {"key": "a:b:c:d"},
    "/partitions/steer": {"act": "pause", "key": "crm/ann/orders/2026-01-01"},
    "/partitions/rollback": {"key": "crm/ann/orders/2026-01-01"},
    "/partitions/share": {"sweep": "1", "share": "20"},
    "/partitions/source": {"source": "crm"},
    "/partitions/apply": {"act": "retry", "source": "crm", "query": "orders", "since": "2026-01-01", "until": "2026-01-02"},
    "/erase/plan": {"user": "ann"},
    "/erase/apply": {"user": "ann"},
}
BODIES: dict[str, dict[str, Any]] = {
    "/api/jobs/cancel": SELECTED,
    "/api/jobs/run-now": SELECTED,
    "/api/jobs/reschedule": SELECTED | {"due": "2030-01-01T00:00Z"},
    "/api/jobs/prioritise": SELECTED | {"priority": 1},
    "/api/jobs/1/reveal": BECAUSE,
    "/api/jobs/1/signal": BECAUSE | {"name": "go"},
    "/api/dead/replay": SELECTED,
    "/api/dead/discard": SELECTED,
    "/api/dead/1/reveal": BECAUSE,
    "/api/sweeps/1/resume": BECAUSE,
    "/api/sweeps/1/1": BECAUSE,
    "/api/pauses/pause": BECAUSE | {"scope": "app"},
    "/api/pauses/resume": BECAUSE | {"scope": "app"},
    "/api/pauses/unpark": BECAUSE | {"name": "orders.sync"},
    "/api/limits/set": BECAUSE | {"name": "orders.sync", "rate": 1},
    "/api/limits/reset": BECAUSE | {"name": "orders.sync"},
    "/api/schedules/fire": BECAUSE | {"name": "orders.sync"},
    "/api/events/replay": BECAUSE | {"id": "p-1"},
    "/api/keys/release": BECAUSE | {"key": "a:b:c:d"},
    "/api/batches/reopen": BECAUSE | {"batch": "mail", "items": ["a"]},
    "/api/partitions/plan/1": BECAUSE | PARTITION | {"max": 1},
    "/api/partitions/1": BECAUSE | PARTITION | {"max": 1},
    "/api/partitions/backfills/1/share": BECAUSE,
    "/api/backfills/plan": PARTITION,
    "/api/backfills": BECAUSE | PARTITION | {"max": 1},
    "/api/erase/plan": {"user": "ann"},
    "/api/erase": BECAUSE | {"user": "ann", "max": 1},
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """A ledger with dead letters and queued jobs of two job types: 1 and 3 orders.sync, 2 and 4 billing."""
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as app:
        for kind in ("orders.sync", "billing"):
            app.ledger.submit(NewJob(kind, f"shop:ann:{kind}:sync:v1", b'{"card": "4111"}'))
        app.ledger.settle([lease.dead("permanent") for lease in app.ledger.claim({"orders.sync": 1, "billing": 1}, worker="w")])
        for kind in ("orders.sync", "billing"):
            app.ledger.submit(NewJob(kind, f"shop:ben:{kind}:sync:v1", b'{"card": "4111"}'))
        yield app


def browser_of(app: App | Ledger, rights: Rights | None) -> tuple[TestClient, dict[str, str]]:
    """Return a browser of an operator with these rights, and the header of its CSRF token."""
    console = asgi(app, who=lambda scope: User("ben", role="operator", rights=rights))
    browser = TestClient(console, base_url=HERE, follow_redirects=False)
    return browser, {"x-csrf-token": csrf(browser.get("/jobs").text)}


@pytest.mark.req("X-4")
def test_every_changing_route_needs_a_right(app: App) -> None:
    app.on("paid", name="orders.mail")(lambda event: None)
    app.receive(Event("paid", {}, id="p-1", source="web"))
    browser, headers = browser_of(app, Rights(acts=()))
    assert {*FORMS, *BODIES} == set(CHANGING)
    for path, form in FORMS.items():
        url = path.replace("/sweeps/1/1", "/sweeps/1/pause")
        answer = browser.post(url, data=form | BECAUSE, headers=headers)
        assert (path, answer.status_code) == (path, 403)
        assert "you have no right to do this" in answer.text, path
    for path, body in BODIES.items():
        url = path.replace("/sweeps/1/1", "/sweeps/1/pause").replace("plan/1", "plan/retry")
        url = url.replace("partitions/1", "partitions/retry")
        url += "?percent=20" if url.endswith("share") else ""
        answer = browser.post(url, json=body, headers=headers)
        assert (path, answer.status_code) == (path, 403), answer.text
        assert "you have no right to do this; nothing was changed" in answer.json()["detail"], path
    assert app.ledger.audit() == []


@pytest.mark.req("X-4")
def test_rights_of_an_act_allow_this_act_alone(app: App) -> None:
    browser, headers = browser_of(app, Rights(acts={"discard"}))
    assert browser.post("/api/dead/discard", json=SELECTED, headers=headers).status_code == 200
    assert browser.post("/api/dead/replay", json=BECAUSE | {"ids": [2]}, headers=headers).status_code == 403
    page = browser.get("/dead/2").text
    assert ("act=discard" in page, "act=replay" in page, "Reveal secrets" in page) == (True, False, False)
    assert "read-only" not in page
    listed = browser.get("/dead?kind=billing").text
    assert ("Discard all matching" in listed, "Replay all matching" in listed) == (True, False)
    for path in ("/controls", "/schedules", "/jobs?kind=billing", "/partitions", "/batches", "/erase", "/search?q=billing"):
        page = browser.get(path).text
        assert not re.search(r'<form[^>]*method="post"|/jobs/plan|/partitions/plan', page), path


@pytest.mark.req("X-4")
def test_a_bulk_operation_never_touches_other_job_types(app: App) -> None:
    browser, headers = browser_of(app, ORDERS)
    message = "you have no right for the job type billing; your rights are limited to orders.*; nothing was changed"
    for selection in ({"ids": [1, 2]}, {"since": "1h", "max": 10}, {"kind": "billing", "max": 10}):
        answer = browser.post("/api/dead/discard", json=BECAUSE | selection, headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (403, f"discard: {message}")
    plan = browser.get("/dead/plan?act=replay&since=1h")
    assert (plan.status_code, "you have no right for the job type billing" in plan.text) == (403, True)
    assert browser.get("/api/dead/plan?act=replay&since=1h").status_code == 403
    assert browser.post("/api/jobs/cancel", json=BECAUSE | {"ids": [3, 4]}, headers=headers).status_code == 403
    assert app.ledger.audit() == []
    assert browser.post("/api/jobs/cancel", json=BECAUSE | {"kind": "orders.sync", "max": 9}, headers=headers).status_code == 200
    assert browser.post("/api/dead/replay", json=BECAUSE | {"ids": [1]}, headers=headers).status_code == 200
    job = app.ledger.get(4)
    assert job is not None
    assert job.state == "ready"


@pytest.mark.req("X-4")
def test_a_plan_of_another_operator_is_checked_again_when_it_is_applied(app: App) -> None:
    plan = Operator(app, actor="ann").dead_letters.discard(DeadLetterFilter(ids=(1, 2)))
    with pytest.raises(MissingRight, match="no right for the job type billing"):
        Operator(app, actor="ben", rights=ORDERS).begin(plan, because="INC-42")
    cancel = Operator(app, actor="ann").jobs.cancel(JobFilter(ids=(3,)))
    with pytest.raises(MissingRight, match="cancel: you have no right"):
        Operator(app, actor="ben", rights=Rights(acts={"discard"})).apply(cancel, because="INC-42")
    assert app.ledger.audit() == []


@pytest.mark.req("X-4")
def test_a_bulk_operation_of_other_job_types_cannot_be_steered(app: App) -> None:
    ann, ben = Operator(app, actor="ann"), Operator(app, actor="ben", rights=ORDERS)
    both = ann.begin(ann.dead_letters.discard(DeadLetterFilter(ids=(1, 2))), because="x")
    orders = ann.begin(ann.jobs.cancel(JobFilter(kind="orders.sync")), because="x")
    with pytest.raises(MissingRight, match="sweep: you have no right for the job type billing"):
        ben.sweeps.pause(both.id, because="x")
    assert ben.sweeps.pause(orders.id, because="x").state == "paused"
    with pytest.raises(MissingRight, match="sweep: you have no right to do this"):
        Operator(app, actor="eve", rights=Rights(acts={"replay"})).sweeps.pause(both.id, because="x")


@pytest.mark.req("X-4")
def test_payloads_of_other_job_types_are_hidden_and_lists_are_not(app: App) -> None:
    app.on("paid", name="billing")(lambda event: None)
    app.receive(Event("paid", {"card": "4111"}, id="p-1", source="web"))
    browser, headers = browser_of(app, ORDERS)
    for path in ("/dead/2", "/jobs/4", "/events/show?id=p-1", "/api/dead/2", "/api/jobs/4", "/api/events/one?id=p-1"):
        answer = browser.get(path)
        assert (path, answer.status_code, "4111" in answer.text) == (path, 403, False)
        assert "no right for the job type billing" in answer.text
    for path in ("/dead/1", "/jobs/3", "/api/dead/1", "/api/jobs/3"):
        assert "4111" in browser.get(path).text, path
    assert browser.post("/api/dead/2/reveal", json=BECAUSE, headers=headers).status_code == 403
    assert browser.post("/api/jobs/4/signal", json=BECAUSE | {"name": "go"}, headers=headers).status_code == 403
    for path in ("/", "/dead", "/jobs", "/failures", "/journal", "/audit", "/events", "/workers", "/sweeps"):
        assert browser.get(path).status_code == 200, path
    assert "billing" in browser.get("/dead").text
    assert "act=replay" not in browser.get("/dead?by=cause&kind=billing").text


READING = [route.path for route in ROUTES if "GET" in (route.methods or set()) and "oidc" not in route.path]
QUERY = "?id=p-1&key=billing:ann:1:charge:v1&kind=billing&q=type:billing&act=discard&ids=1&user=ann&signature=x"


@pytest.fixture
def sink() -> Iterator[None]:
    """Subscribe the Prometheus sink for one test. The page of metrics would leave its own subscribed."""
    unsubscribe = journal.subscribe(journal.prometheus())
    yield
    unsubscribe()


@pytest.mark.req("X-4")
@pytest.mark.usefixtures("sink")
def test_no_reading_route_shows_payloads_of_other_job_types(tmp_path: Path) -> None:
    """Payloads, results, steps, notes, checkpoints, signals and stored responses: on every page and in every answer."""
    app = App(f"sqlite:///{tmp_path / 'ledger.db'}")

    @app.command("billing", key="shop:{user}:{number}:bill:v1")
    def bill(user: str, number: int, card: str) -> str:
        job = current()
        job.step("charge", lambda: card)
        job.progress(0.5, card)
        job.checkpoint(card)
        if number == 1:
            raise ValueError("declined")
        return card

    @app.once("billing:{user}:1:charge:v1")
    def charge(user: str) -> str:
        return CARD

    app.on("paid", name="billing.mail")(lambda event: None)
    with sandbox(app) as box:
        for number in range(2):
            bill.submit("ann", number, CARD)
        charge("ann")
        app.receive(Event("paid", {"card": CARD}, id="p-1", source="web"))
        box.drain()
        limited, _ = browser_of(app, ORDERS)
        everything, _ = browser_of(app, None)
        shown, before = 0, app.ledger.audit(limit=100)
        for path in READING:
            for url in (path.replace("{number}", number) for number in "12"):
                for address in (url, url + QUERY):
                    answer = limited.get(address)
                    assert CARD not in answer.text, address
                    assert answer.status_code < 500, address
                    if CARD in everything.get(address).text:
                        assert answer.status_code == 403, address
                        shown += 1
        assert shown > 15, "too few pages have payloads"
        assert app.ledger.audit(limit=100) == before, "reading changes nothing"


@pytest.mark.req("X-4")
def test_no_changing_route_acts_on_other_job_types(app: App) -> None:
    """Each request of FORMS and BODIES, about billing instead of orders."""
    app.on("paid", name="billing")(lambda event: None)
    app.receive(Event("paid", {}, id="p-1", source="web"))
    ann = Operator(app, actor="ann")
    ann.begin(ann.dead_letters.discard(DeadLetterFilter(ids=(2,))), because="x")
    later = app.ledger.submit(NewJob("billing", "shop:eve:billing:sync:v1", delay=3600)).id
    before = app.ledger.audit(limit=100)
    browser, headers = browser_of(app, ORDERS)
    for path, fields in (FORMS | BODIES).items():
        if "partitions" in path or "backfills" in path:  # there are none
            continue
        url = path.replace("/sweeps/1/1", "/sweeps/1/pause").replace("/dead/1", "/dead/2").replace("/jobs/1", "/jobs/4")
        job = later if path.endswith("run-now") else 4
        other: dict[str, Any] = {"name": "billing", "ids": [job if "jobs" in path else 2]}
        content: Any = {name: other.get(name, value) for name, value in fields.items()}
        if path in FORMS:
            answer = browser.post(url, data=content | BECAUSE, headers=headers)
        else:
            answer = browser.post(url, json=content, headers=headers)
        assert (path, answer.status_code) == (path, 403), answer.text
    assert app.ledger.audit(limit=100) == before


@pytest.mark.req("X-4")
def test_partitions_of_other_datasets_cannot_be_changed(lake: World) -> None:
    sweep = {"sweep": "2", "share": "20"}
    days = {"source": "crm", "query": "orders", "since": str(DAY), "until": str(DAY), "customers": "c3"}
    changes: dict[str, dict[str, Any]] = {
        "/partitions/steer": {"act": "pause", "key": f"crm/c3/orders/{DAY}"},
        "/partitions/rollback": {"key": f"crm/c0/orders/{DAY}"},
        "/partitions/share": sweep,
        "/partitions/apply": days | {"act": "retry"},
        "/partitions/source": {"source": "crm"},
        "/sweeps/2/pause": {},
    }
    bodies: dict[str, dict[str, Any]] = {
        "/api/partitions/plan/retry": PARTITION | {"since": str(DAY), "until": str(DAY), "customers": ["c3"]},
        "/api/partitions/retry": PARTITION | {"since": str(DAY), "until": str(DAY), "customers": ["c3"], "max": 9},
        "/api/partitions/backfills/2/share?percent=20": {},
        "/api/backfills/plan": PARTITION,
        "/api/backfills": PARTITION | {"max": 9} | BECAUSE,
        "/api/sweeps/2/cancel": {},
    }
    before = lake.ledger.audit(limit=1000)
    browser, headers = browser_of(lake.ledger, Rights(job_types={"crm/contacts", "erp/*"}))
    for path, form in changes.items():
        answer = browser.post(path, data=form | BECAUSE, headers=headers)
        assert (path, answer.status_code) == (path, 403), answer.text
    for path, body in bodies.items():
        answer = browser.post(path, json=body if "backfills/plan" in path else body | BECAUSE, headers=headers)
        assert (path, answer.status_code) == (path, 403), answer.text
    assert lake.ledger.audit(limit=1000) == before
    browser, headers = browser_of(lake.ledger, Rights(job_types={"crm/*"}))
    answer = browser.post("/partitions/steer", data=changes["/partitions/steer"] | BECAUSE, headers=headers)
    assert answer.status_code == 303, answer.text


@pytest.mark.req("X-4")
def test_what_belongs_to_no_job_type_needs_rights_for_all(app: App) -> None:
    browser, headers = browser_of(app, ORDERS)
    refused: dict[str, dict[str, Any]] = {
        "/api/pauses/pause": {"scope": "app"},
        "/api/pauses/resume": {"scope": "source", "name": "web"},
        "/api/keys/release": {"key": "a:b:c:d"},
        "/api/batches/reopen": {"batch": "mail", "items": ["a"]},
        "/api/erase": {"user": "ann", "max": 9},
    }
    for path, body in refused.items():
        answer = browser.post(path, json=BECAUSE | body, headers=headers)
        detail = "it belongs to no job type, and your rights are limited to orders.*"
        assert (path, answer.status_code, detail in answer.text) == (path, 403, True)
    pause = {"scope": "job type", "name": "orders.sync"}
    assert browser.post("/api/pauses/pause", json=BECAUSE | pause, headers=headers).status_code == 200
    pause["name"] = "billing"
    assert browser.post("/api/pauses/pause", json=BECAUSE | pause, headers=headers).status_code == 403
    assert browser.post("/api/limits/set", json=BECAUSE | {"name": "billing", "rate": 1}, headers=headers).status_code == 403


@pytest.mark.req("X-4")
def test_an_entry_of_the_audit_log_is_refused_without_the_right(app: App) -> None:
    """The last check: an operation that forgot its own is refused, and its transaction is rolled back."""
    actor = Actor("ben", check=Rights(acts={"replay"}).check_action)
    with pytest.raises(MissingRight):
        app.ledger.record(actor=actor, action="dead.discard", because="x", what={})
    with pytest.raises(MissingRight):
        app.ledger.record(actor=actor, action="ledger.recount", because="x", what={})
    app.ledger.record(actor=actor, action="event.replay", because="x", what={})
    assert [entry.action for entry in app.ledger.audit()] == ["event.replay"]


def test_every_action_of_the_audit_log_has_an_act() -> None:
    source = Path(asgi.__code__.co_filename).parent.parent
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py") if path.name != "rights.py"]
    pairs = [pair for text in texts for pair in re.findall(r'action="([a-z_.]+)"|\.record\(\s*"([a-z_.]+)"', text)]
    written = {first or second for first, second in pairs}
    assert len(written) > 10
    known = {action for _, actions in ACTS.values() for action in actions}
    others = {"ledger.recount", "store_true"}  # of the command line alone
    assert {action for action in written if action not in known and action.partition(".")[0] not in known} <= others


def test_the_page_lists_every_act() -> None:
    page = (Path(__file__).parents[4] / "docs/how-to/operate/access.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE))
    assert {act: rows[act].replace("`", "") for act in ACTS} == {act: sentence for act, (sentence, _) in ACTS.items()}
