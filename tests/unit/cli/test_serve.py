"""`redrive serve`: where it stands, what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from redrive.ledger import open_ledger
from tests.unit.cli.command import PROGRAM, call, sqlite


@pytest.fixture
def url(tmp_path: Path) -> str:
    open_ledger(sqlite(tmp_path), migrate=True).close()
    return sqlite(tmp_path)


@pytest.mark.req("O-4")
@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "ops.example"])
def test_another_address_needs_a_password_or_a_token(url: str, host: str) -> None:
    status, printed = call("serve", url, "--host", host, "--port", "0")
    assert status == 2
    assert "can be reached by others" in printed
    assert "REDRIVE_CONSOLE_PASSWORD" in printed


def test_what_is_wrong_is_said_in_a_line(url: str, tmp_path: Path) -> None:
    status, printed = call("serve", url, REDRIVE_CONSOLE_PASSWORD="short")
    assert (status, "at least 8 characters" in printed) == (2, True)
    assert call("serve", f"sqlite:///{tmp_path / 'none.db'}", "--port", "0")[0] == 3
    assert call("serve", "no_such_module:app", "--port", "0")[0] == 2
    status, printed = call("serve", url, "--host", "198.51.100.1", "--port", "0", REDRIVE_CONSOLE_TOKEN="0123456789abcdef")
    assert (status, "cannot be served there" in printed) == (2, True)


def test_it_says_where_to_look_and_ends_when_told(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "serve", "--ledger", url, "--port", "0", "--read-only", "--json"]
    environment = os.environ | {"REDRIVE_CONSOLE_TOKEN": "0123456789abcdef"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        said = json.loads(child.stdout.readline())
        assert (said["event"], said["guarded"], said["read_only"], said["ledger"]) == ("started", True, True, url)
        with urllib.request.urlopen(f"{said['url']}ready") as answer:
            assert json.load(answer) == {"status": "ok"}
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
