"""The words of rendered pages: code is marked up, counts have the right plural, and states have readable names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from redrive import App
from redrive.console.render.errors import TITLES
from redrive.console.render.fragments import inline, sentence, status
from redrive.ledger import NewJob
from tests.conformance.partitions.world import World
from tests.style.prose import measure
from tests.unit.console.browser import client
from tests.unit.console.test_command_lines import PAGES

PLURAL = re.compile(r"(?<![\d.,/:#-])1 (?:[a-z-]+ )?(?:jobs|letters|items|rows|partitions|workers|attempts|entries|days|bytes)\b")
INTERNAL = re.compile(r"\b(?:dlq|retry_wait|refresh_failed)\b")


class _Text(HTMLParser):
    """Collects the visible text and the labels, without code and without payloads and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "code", "pre")
        self.blocks += [value for name, value in attrs if name in ("aria-label", "placeholder") and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "code", "pre")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.blocks.append(" ".join(data.split()))


def text_of(page: str) -> str:
    read = _Text()
    read.feed(page)
    return "\n".join(filter(None, read.blocks))


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A ledger with exactly one of each thing, so that every plural is a mistake."""
    with App(f"sqlite:///{tmp_path_factory.mktemp('wording') / 'ledger.db'}", migrate=True) as app:
        ledger = app.ledger
        ledger.maintenance.heartbeat("web-1:41", {"threads": 1, "kinds": ["crm.sync"]})
        ledger.submit(NewJob("crm.sync", "shop:ann:c-1:sync:v1", b"1"))
        (lease,) = ledger.claim({"crm.sync": 1}, worker="web-1:41")
        ledger.settle(lease.dead("permanent", error="KeyError: 'x'"))
        ledger.submit(NewJob("crm.sync", "shop:ann:c-2:sync:v1", b"1"))
        items = app.items("tiles")
        items.increment_many(["t-1"])
        items.give_up_many({"t-1": "corrupt"})
        ledger.sweeps.begin("replay", [1], actor="ann", because="to see", canary=1, rate=0.001)
        lake = World(ledger)
        lake.backfill(1, 1)
        lake.reject(*lake.claim(1))
        yield client(app)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path[:50])
def test_a_page_has_no_raw_backticks_wrong_plurals_or_internal_states(console: TestClient, path: str) -> None:
    answer = console.get(path)
    shown = text_of(answer.text)
    assert "`" not in shown
    assert PLURAL.findall(shown) == []
    assert INTERNAL.findall(shown) == []
    assert measure(shown.splitlines()).idiom == []


def test_code_in_a_message_is_marked_up_and_escaped() -> None:
    assert inline("run `redrive work` <b>") == "run <code>redrive work</code> &lt;b&gt;"
    assert sentence("job 7 does not exist") == "Job 7 does not exist."
    assert sentence("crm.sync: late") == "crm.sync: late."
    assert sentence("mail: late") == "mail: late."


def test_a_state_is_shown_by_its_word_and_stays_in_the_address(console: TestClient) -> None:
    assert ">dead</span>" in status("dlq")
    assert '<option value="dlq">dead</option>' in console.get("/jobs").text


@pytest.mark.parametrize("code", [400, 422])
def test_an_invalid_request_is_named_as_such(console: TestClient, code: int) -> None:
    assert TITLES[code] == "Invalid request"
    assert "<h1>Invalid request</h1>" in console.get("/dead/plan?act=burn&ids=1").text


def test_reason_and_because_are_two_words_for_two_things(console: TestClient) -> None:
    letter = console.get("/dead/1").text
    assert ("<dt>Reason</dt><dd>permanent</dd>" in letter, ">Cause<" in letter) == (True, False)
    assert "<span>Because</span>" in console.get("/dead/plan?act=replay&ids=1").text
    assert "<dt>Because</dt><dd>to see</dd>" in console.get("/sweeps/1").text


def test_items_given_up_are_a_problem_on_the_overview(tmp_path: Path) -> None:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=True) as app:
        app.items("tiles").give_up_many({f"t-{each}": "corrupt" for each in range(10)})
        page = client(app).get("/").text
        assert "Batch items: 10 given up in the last hour" in page
        assert '"/batches?since=1h"' in page


def test_pending_items_of_batches_are_on_the_overview(tmp_path: Path) -> None:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=True) as app:
        assert "No jobs were submitted yet." in client(app).get("/").text
        app.items("tiles").increment_many(["t-1", "t-2"])
        page = client(app).get("/").text
        assert ">Batches</a>: 2 items rejected and sent again by the next call (2 tiles)." in page
        assert "No jobs were submitted yet." not in page
