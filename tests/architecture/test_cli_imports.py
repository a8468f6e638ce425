"""A command of the CLI loads only the modules it needs, because every import delays the operator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ledgers import sqlite_ledger

LOOKS = (("jobs", "list"), ("dead", "list"), ("sweeps", "list"), ("events", "list"), ("keys", "list"))
UNNEEDED = (
    "alembic", "sqlalchemy.orm", "opentelemetry", "prometheus_client", "fastapi", "starlette", "uvicorn", "jinja2",
    "psycopg", "redis", "httpx2", "grpc", "pyarrow", "redrive.app.app", "redrive.engine", "redrive.worker", "redrive.storage",
    "redrive.ledger.store.postgres.store", "redrive.ledger.store.sqlite.store", "redrive.ops.health.doctor",
    "redrive.ops.overview.overview",
)  # fmt: skip
PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout, suppress
from redrive.cli.root import run
sys.argv = ["redrive", *sys.argv[1:]]
with redirect_stdout(io.StringIO()), suppress(SystemExit):
    run()
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_read_only_command_loads_only_the_modules_it_needs(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, *words, "--ledger", sqlite_ledger(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert "redrive.ledger.ledger" in loaded, done.stderr
    assert [name for name in UNNEEDED if name in loaded] == []
