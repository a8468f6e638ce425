"""The list of dead letters by the words of a search: page, plan and REST API."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ledger import NewJob

from .browser import client, csrf


@pytest.fixture
def bob(app: App) -> int:
    """The dead letter of Bob. Ann has one, too."""
    app.ledger.submit(NewJob("crm.sync", "shop:bob:c-2:sync:v1", b"{}", tags={"order_id": "o-17"}))
    app.ledger.settle([lease.dead("permanent") for lease in app.ledger.claim({"crm.sync": 1}, worker="w")])
    return max(letter.id for letter in app.ledger.dead_letters())


@pytest.mark.req("Q-1")
def test_the_api_lists_and_replays_dead_letters_by_the_words_of_a_search(app: App, bob: int) -> None:
    browser = client(app)
    browser.headers["x-csrf-token"] = csrf(browser.get("/dead").text)

    def found(words: str, **more: str) -> list[int]:
        return [letter["id"] for letter in browser.get("/api/dead", params={"q": words, **more}).json()]

    assert found("user:bob") == found("order_id:o-17") == found("o-17") == found("user:bob state:dead") == [bob]
    assert found("type:crm.sync", kind="crm.sync") == [bob, 1]
    assert found("user:carl") == []
    groups = browser.get("/api/dead/groups", params={"q": "user:bob"}).json()
    assert [group["count"] for group in groups] == [1]
    for words, problem in {
        "colour:red": "unknown word 'colour'",
        "type:crm.pull": "kind: specified twice",
        "state:queued": "state:queued: not a state of a list of dead letters",
    }.items():
        wrong = browser.get("/api/dead", params={"q": words, "kind": "crm.sync"})
        assert (wrong.status_code, problem in wrong.json()["detail"]) == (422, True)
    body = {"q": "user:bob", "max": 1, "because": "the CRM is back"}
    assert browser.post("/api/dead/replay", json=body).json()["made"] == 1
    assert found("user:bob", status="all") == [bob]
    assert found("", status="pending") == [1]


@pytest.mark.req("Q-1")
def test_the_page_searches_and_its_plan_keeps_the_words(app: App, bob: int) -> None:
    browser = client(app)
    page = browser.get("/dead", params={"q": "user:bob"}).text
    assert f'href="/dead/{bob}"' in page
    assert 'href="/dead/1"' not in page
    assert 'name="q" value="user:bob"' in page
    assert "redrive dead list --search user:bob" in page
    assert "/dead/plan?act=replay&amp;q=user%3Abob" in page
    plan = browser.get("/dead/plan", params={"act": "discard", "q": "user:bob"}).text
    assert "Discard 1 dead letter?" in plan
    assert '<input type="hidden" name="q" value="user:bob">' in plan
    assert "redrive dead discard --search user:bob" in plan
    wrong = browser.get("/dead", params={"q": "colour:red"})
    assert (wrong.status_code, "unknown word" in wrong.text.lower()) == (422, True)
