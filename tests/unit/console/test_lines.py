"""The lines for a terminal that stand beside every act: each is one that the command line takes."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from fastapi.testclient import TestClient

from redrive.cli.root import app as command_line
from redrive.console.render.navigation import NAV
from tests.conformance.partitions.world import DAY, World
from tests.console.world import in_trouble, shop
from tests.unit.console.browser import client

DAYS = f"since={DAY}&until={DAY + timedelta(days=3)}"
PICKED = f"of_source=crm&of_query=orders&from={DAY}&to={DAY + timedelta(days=1)}"
PAGES = [page.path for _, pages in NAV for page in pages] + [
    "/dead?kind=crm.sync&error=Timeout&status=all", "/dead?by=cause", "/dead/3", "/dead/18",
    "/dead/plan?act=replay&kind=crm.sync", "/dead/plan?act=discard&ids=3&ids=4", "/sweeps/1", "/sweeps/2",
    "/jobs?state=retry_wait&kind=crm.sync", "/jobs/1", "/jobs/18", "/events/show?id=ev-1", "/events?source=web",
    "/keys/show?key=billing:ann:o-1:charge:v1", "/keys?domain=billing&abandoned=1", "/audit?verify=1", "/workers?all=1",
    "/audit?actor=ann&action=dead&since=7d", "/journal?event=rejected&kind=crm/orders", "/failures?kind=crm.sync&since=7d",
    "/batches?batch=tiles&reason=x&since=1h", f"/partitions?source=crm&{DAYS}&{PICKED}",
    f"/partitions/day?source=crm&query=orders&status=failed&{DAYS}&key=crm/c0/orders/{DAY}",
    f"/partitions/plan?act=retry&source=crm&query=orders&{DAYS}",
]  # fmt: skip


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path: Path = tmp_path_factory.mktemp("lines")
    with shop(f"sqlite:///{path / 'ledger.db'}") as app:
        in_trouble(app)
        lake = World(app.ledger)
        lake.backfill(3, 4)
        lake.reject(*lake.claim(5))
        yield client(app)


def parsed(line: str) -> None:
    """Read as the command line reads it, up to where it would begin to run. An error: it would refuse it."""
    program, *words = shlex.split(line)
    assert program == "redrive"
    command: Any = typer.main.get_command(command_line)
    while hasattr(command, "commands"):
        found = command.get_command(None, words[0])
        assert found is not None, f"there is no {words[0]!r}: {line}"
        command = found
        del words[0]
    command.make_context("redrive", words)


@pytest.mark.req("O-4")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path[:50])
def test_every_line_beside_an_act_can_be_typed(console: TestClient, path: str) -> None:
    answer = console.get(path)
    assert answer.status_code == 200
    lines = [html.unescape(found) for found in re.findall(r'data-copy="([^"]*)"', answer.text)]
    assert lines or path == "/erase", "every page has its line"
    for line in lines:
        parsed(line)


def test_a_line_that_cannot_be_typed_is_seen() -> None:
    for line in ("redrive batch lst", "redrive dead replay --knd x"):
        with pytest.raises(Exception, match="lst|--knd"):
            parsed(line)
