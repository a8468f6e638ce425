"""The pytest plugin and its fixtures, in a separate pytest run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio

from redrive import RetryPolicy, retry

calls = 0


@retry(RetryPolicy(max_attempts=3, backoff_base=1000, backoff_max=1000, jitter=1000))
def fetch():
    global calls
    calls += 1
    if calls % 3:
        raise ConnectionError
    return calls


def test_clock(redrive_clock):
    assert fetch() == 3
    assert redrive_clock.slept == [1000, 1000]


def test_async(redrive_clock):
    async def main():
        return fetch()

    assert asyncio.run(main()) == 6


def test_journal(redrive_clock, redrive_journal):
    fetch()
    assert [record.kind for record in redrive_journal.records] == ["retry", "retry", "recovered"]
    retry().call(int, "7")
    assert redrive_journal.records[-1].kind == "success"


def test_nothing_is_left(redrive_journal):
    from redrive.core.context import SIMULATION

    assert SIMULATION.get() is None
    assert redrive_journal.records == []


def test_the_plugin_alone_imports_nothing():
    import subprocess, sys

    heavy = ("redrive.engine", "redrive.core.", "redrive.testing.http_server", "http.server")
    names = f"{{name for name in sys.modules if name.startswith({heavy!r})}}"
    code = f"import redrive.testing.plugin, sys; assert {names} <= {{'redrive.core.lazy', 'redrive.core.version'}}, {names}"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


def test_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_program.py").write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "5 passed" in done.stdout, done.stdout + done.stderr
