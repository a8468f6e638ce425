"""Bulk operations: a replay that its canary halted, on its page and by the API."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.ledger import NewJob
from redrive.ledger.sweep import Sweep
from redrive.ops import Operator
from tests.conformance.partitions.world import World

from .browser import client, csrf

FIELD = 'name="accept_failed_canary"'


def _halt_by_canary(app: App) -> Sweep:
    """Return a replay of two dead letters, whose canary of one has failed again."""
    app.ledger.submit(NewJob("crm.sync", "shop:ann:c-2:sync:v1", b"{}"))
    app.ledger.settle([lease.dead("permanent") for lease in app.ledger.claim({"crm.sync": 1}, worker="w")])
    dead = [letter.id for letter in app.ledger.dead_letters()]
    begun = app.ledger.sweeps.begin("replay", dead, actor="ann", because="fixed", canary=1)
    app.ledger.sweeps.step(begun.id)
    app.ledger.settle([lease.dead("attempts", error="503") for lease in app.ledger.claim({"crm.sync": 1}, worker="w")])
    halted = app.ledger.sweeps.step(begun.id).sweep
    assert halted.state == "halted"
    return halted


def _state(app: App, sweep_id: int) -> str:
    sweep = app.ledger.sweeps.get(sweep_id)
    assert sweep is not None
    return sweep.state


@pytest.mark.req("M-4", "O-4")
def test_the_page_resumes_after_a_failed_canary_only_if_it_is_accepted(app: App) -> None:
    sweep = _halt_by_canary(app)
    browser = client(app)
    page = browser.get(f"/sweeps/{sweep.id}").text
    assert FIELD in page
    form = {"csrf": csrf(page), "because": "only that one was bad"}
    refused = browser.post(f"/sweeps/{sweep.id}/resume", data=form)
    assert refused.status_code == 409
    assert "accept the failed canary" in refused.text
    assert _state(app, sweep.id) == "halted"
    accepted = browser.post(f"/sweeps/{sweep.id}/resume", data=form | {"accept_failed_canary": "1"})
    assert accepted.status_code == 303
    assert _state(app, sweep.id) == "running"
    assert FIELD not in browser.get(f"/sweeps/{sweep.id}").text


def test_the_page_of_a_cancelled_operation_does_not_explain_how_to_resume(app: App) -> None:
    sweep = _halt_by_canary(app)
    browser = client(app)
    assert "Resume needs" in browser.get(f"/sweeps/{sweep.id}").text
    Operator(app, actor="ann").sweeps.cancel(sweep.id, because="wrong selection")
    page = browser.get(f"/sweeps/{sweep.id}").text
    assert "anary failed, 1 of the first 1" in page
    assert "Resume needs" not in page


@pytest.mark.req("M-4", "O-4")
def test_the_api_resumes_after_a_failed_canary_only_if_it_is_accepted(app: App) -> None:
    sweep = _halt_by_canary(app)
    browser = client(app)
    browser.headers["x-csrf-token"] = csrf(browser.get("/sweeps").text)
    path, body = f"/api/sweeps/{sweep.id}/resume", {"because": "only that one was bad"}
    refused = browser.post(path, json=body)
    assert (refused.status_code, "accept_failed_canary=True" in refused.json()["detail"]) == (409, True)
    assert browser.post(path, json=body | {"accept_failed_canary": True}).json()["state"] == "running"


@pytest.mark.req("P-10", "O-4")
def test_the_page_resumes_a_backfill_after_a_failed_canary_only_if_it_is_accepted(app: App) -> None:
    lake = World(app.ledger)
    sweep_id = lake.backfill(4, canary=1)
    lake.reject(*lake.claim(), final=True)
    lake.claim()
    browser = client(app)
    page = browser.get(f"/sweeps/{sweep_id}").text
    assert FIELD in page
    assert "starts the other 3 partitions without another canary" in page
    form = {"csrf": csrf(page), "because": "only that one was bad"}
    assert browser.post(f"/sweeps/{sweep_id}/resume", data=form).status_code == 409
    assert _state(app, sweep_id) == "halted"
    accepted = browser.post(f"/sweeps/{sweep_id}/resume", data=form | {"accept_failed_canary": "1"})
    assert (accepted.status_code, _state(app, sweep_id)) == (303, "running")


def test_a_replayed_job_is_not_shown_as_discarded(app: App) -> None:
    (letter,) = app.ledger.dead_letters()
    (new,) = app.ledger.replay([letter.id], actor="ann", because="fixed").done.values()
    page = client(app).get(f"/jobs/{letter.job_id}").text
    assert "</span>replaced by a replay</span>" in page
    assert f'<dt>Replayed as</dt><dd><a href="/jobs/{new}">job {new}</a></dd>' in page
