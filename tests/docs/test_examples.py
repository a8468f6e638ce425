"""Every program in examples/ runs to its end automatically, without a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PACKAGES = sorted(main.parent for main in (ROOT / "examples").glob("*/__main__.py"))
NEED_REDIS = ("celery_bridge",)


@pytest.mark.parametrize("example", [*EXAMPLES, *PACKAGES], ids=lambda example: str(example.name))
def test_an_example_runs(example: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    program = [str(example)] if example.suffix else ["-m", f"examples.{example.name}"]
    command = [sys.executable, "-W", "error", *program]
    environment = os.environ | ({} if example.suffix else {"PYTHONPATH": str(ROOT)})
    if example.name in NEED_REDIS:
        environment |= {"REDIS_URL": request.getfixturevalue("redis_url")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
