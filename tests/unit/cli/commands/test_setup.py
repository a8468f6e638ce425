"""`redrive init`, its sample app, and `redrive config`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from redrive.settings import settings
from tests.unit.cli.command import run
from tests.zygote import warm

PATIENCE = 60.0
T = TypeVar("T")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_LEDGER", raising=False)
    return tmp_path


def test_init_writes_both_files_or_neither(here: Path) -> None:
    done = run("init", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"folder": ".", "files": ["redrive.toml", "work.py"]})
    Path("work.py").write_text("mine")
    Path("redrive.toml").unlink()
    again = run("init")
    assert again.returncode == 1
    assert again.stderr == "redrive: work.py already exists in .; nothing was changed\n"
    assert not Path("redrive.toml").exists()
    assert Path("work.py").read_text() == "mine"


def test_the_written_settings_are_the_defaults(here: Path) -> None:
    assert run("init", "new/shop").returncode == 0
    text = (here / "new/shop/redrive.toml").read_text()
    every = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    Path("redrive.toml").write_text(text)
    assert settings({}).set_by.keys() == {"app", "ledger"}
    Path("redrive.toml").write_text(every)
    assert settings({}).worker == settings({"REDRIVE_CONFIG": "new/shop/redrive.toml"}).worker.__class__(
        name="mill-1", anchors="anchors.jsonl", processes=2, executor="dask://localhost:8786"
    )


@pytest.mark.req("O-3")
def test_the_sample_app_works(here: Path) -> None:
    assert run("init").returncode == 0
    submitted = subprocess.run([sys.executable, "work.py"], capture_output=True, text=True, check=True)
    assert submitted.stdout == "ann: job 1\nbob: job 2\ncat: job 3\n"
    out = here / "out"
    worker = warm().fork(
        "tests.unit.cli.command", ["work", "--metrics-port", "0", "--json"], output=out, folder=here,
        environment=dict(os.environ) | {"PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    try:
        started = json.loads(until(lambda: out.read_text().partition("\n")[0]))
        assert (started["event"], started["kinds"]) == ("started", ["hello"])
        done = 'redrive_jobs_done_total{kind="hello"} 3.0'
        until(lambda: done in scrape(started["metrics"]))
        assert json.loads(scrape(started["metrics"].replace("/metrics", "/health"))) == {"status": "ok"}
    finally:
        os.kill(worker, signal.SIGTERM)
    assert warm().wait(worker) == 0
    listed = json.loads(run("jobs", "list", "--json").stdout)
    assert {(one["state"], one["attempts"]) for one in listed} == {("done", 2)}
    again = subprocess.run([sys.executable, "work.py"], capture_output=True, text=True, check=True)
    assert again.stdout == "ann: job 1 (duplicate)\nbob: job 2 (duplicate)\ncat: job 3 (duplicate)\n"


def test_a_missing_app_is_asked_for(here: Path) -> None:
    done = run("work")
    assert done.returncode == 2
    assert "no app; run `redrive work module:app`, set REDRIVE_APP" in done.stderr


def test_config_shows_values_and_origins(here: Path) -> None:
    Path("redrive.toml").write_text('ledger = "postgresql://ann:s3cret@db/shop"\n[worker]\nthreads = 3\n')
    done = run("config", "--json", REDRIVE_WORKER_THREADS="4", REDRIVE_CONSOLE_TOKEN="s3cret-token-of-mine")
    shown = {one["name"]: one for one in json.loads(done.stdout)}
    assert (shown["worker.threads"]["value"], shown["worker.threads"]["said_by"]) == (4, "REDRIVE_WORKER_THREADS")
    assert (shown["ledger"]["said_by"], shown["console.port"]["said_by"]) == ("redrive.toml", "default")
    assert "s3cret" not in done.stdout + run("config").stdout
    assert all(one["warns"] is None for one in json.loads(done.stdout)), "a variable is as good a place as any"
    wrong = run("config", REDRIVE_WORKER_THREDS="4")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean 'REDRIVE_WORKER_THREADS'?" in wrong.stderr


def until(look: Callable[[], T]) -> T:
    """The output if there are findings."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
    return found


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_config_shows_the_ledger_that_commands_use(here: Path) -> None:
    def ledger() -> tuple[str, str]:
        (row,) = [row for row in json.loads(run("config", "--json").stdout) if row["name"] == "ledger"]
        return row["value"], row["said_by"]

    (here / "redrive.toml").unlink(missing_ok=True)
    assert ledger() == ("sqlite:///redrive.db", "default")
    (here / "redrive.toml").write_text('app = "shop:app"\n')
    assert ledger() == ("the ledger of shop:app", "redrive.toml")
