"""The command lines on the pages: the CLI accepts each of them."""

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
from redrive.console.view import NAVIGATION
from tests.conformance.partitions.world import DAY, World
from tests.console.sample_shop import add_problems, shop
from tests.unit.console.browser import client

DAYS = f"since={DAY}&until={DAY + timedelta(days=3)}"
SELECTED = f"of_source=crm&of_query=orders&from={DAY}&to={DAY + timedelta(days=1)}"
PAGES = [page.path for _, pages in NAVIGATION for page in pages] + [
    "/dead?kind=crm.sync&error=Timeout&status=all", "/dead?by=cause", "/dead/3", "/dead/18",
    "/dead/plan?act=replay&kind=crm.sync", "/dead/plan?act=discard&ids=3&ids=4", "/sweeps/1", "/sweeps/2",
    "/jobs?state=retry_wait&kind=crm.sync", "/jobs/1", "/jobs/18", "/events/show?id=ev-1", "/events?source=web",
    "/keys/show?key=billing:ann:o-1:charge:v1", "/keys?domain=billing&abandoned=1", "/audit?verify=1", "/workers?all=1",
    "/audit?actor=ann&action=dead&since=7d&until=1h", "/journal?event=rejected&kind=crm/orders",
    "/failures?kind=crm.sync&since=7d&until=1h",
    "/dead?kind=crm.sync&since=7d&until=1h", "/dead/plan?act=replay&kind=crm.sync&since=7d&until=1h",
    "/batches?batch=tiles&reason=x&since=1h", f"/partitions?source=crm&{DAYS}&{SELECTED}",
    f"/partitions/day?source=crm&query=orders&status=failed&{DAYS}&key=crm/c0/orders/{DAY}",
    f"/partitions/plan?act=retry&source=crm&query=orders&{DAYS}",
]  # fmt: skip


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path: Path = tmp_path_factory.mktemp("lines")
    with shop(f"sqlite:///{path / 'ledger.db'}") as app:
        add_problems(app)
        lake = World(app.ledger)
        lake.backfill(3, 4)
        lake.reject(*lake.claim(5))
        yield client(app)


def parse(line: str) -> None:
    """Parse a command line as the CLI does, without running it."""
    program, *words = shlex.split(line)
    assert program == "redrive"
    command: Any = typer.main.get_command(command_line)
    while hasattr(command, "commands"):
        subcommand = command.get_command(None, words[0])
        assert subcommand is not None, f"there is no {words[0]!r}: {line}"
        command = subcommand
        del words[0]
    command.make_context("redrive", words)


@pytest.mark.req("O-4")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path[:50])
def test_the_cli_accepts_every_command_line_of_a_page(console: TestClient, path: str) -> None:
    answer = console.get(path)
    assert answer.status_code == 200
    lines = [html.unescape(line) for line in re.findall(r'data-copy="([^"]*)"', answer.text)]
    assert lines or path == "/erase", "every page has a command line"
    for line in lines:
        parse(line)


def test_an_invalid_command_line_is_detected() -> None:
    for line in ("redrive batch lst", "redrive dead replay --knd x"):
        with pytest.raises(Exception, match="lst|--knd"):
            parse(line)
