"""The example of the docs runs on a folder, S3 and SFTP, with another configuration only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.buckets import options

PROGRAM = Path(__file__).parents[3] / "examples" / "storage.py"
PRINTED = """2026-01-31: the manifest already exists
orders/2026-01-30/data.csv 19792
orders/2026-01-30/manifest 15
orders/2026-01-31/data.csv 19792
orders/2026-01-31/manifest 15
total 9990000
"""


def run(folder: Path, kind: str, options: dict[str, Any]) -> str:
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
    (folder / "storage.toml").write_text(f'[stores.raw]\ntype = "{kind}"\nroot_path = "example"\n[stores.raw.options]\n{lines}')
    done = subprocess.run(
        [sys.executable, "-W", "error", PROGRAM, "storage.toml"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.req("S-12")
def test_the_example_runs_on_a_folder(tmp_path: Path) -> None:
    assert run(tmp_path, "local", {"root": "data"}) == PRINTED
    assert (tmp_path / "data" / "example" / "orders" / "2026-01-31" / "manifest").exists()


@pytest.mark.req("S-12")
def test_the_example_runs_on_s3(tmp_path: Path, s3_url: str, s3_bucket: str) -> None:
    assert run(tmp_path, "s3", {"bucket": s3_bucket, **options(s3_url)}) == PRINTED


@pytest.mark.req("S-12")
def test_the_example_runs_on_sftp(tmp_path: Path, sftp_options: dict[str, Any]) -> None:
    assert run(tmp_path, "sftp", sftp_options) == PRINTED
