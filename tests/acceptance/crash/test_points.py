"""Every crash point on both databases: the process crashes there, and no job is lost or repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.ledger.failpoint import POINTS
from tests.zygote import ROOT, Zygote

from .cell import NOWHERE, play
from .diary import read
from .oracle import prepare


@pytest.mark.req("L-2", "L-3", "L-8")
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_each_point_loses_no_job(point: str, url: str, zygote: Zygote, tmp_path: Path) -> None:
    crashes, verdict = play(zygote, url, tmp_path, point, "kill", "first")
    assert verdict.ok, verdict
    expected = 0 if NOWHERE.get(point) == url.partition(":")[0] else 1
    assert crashes == expected, f"{point} was reached {crashes} times: {(tmp_path / 'output').read_text()}"


def test_the_environment_variable_alone_triggers_the_crash(tmp_path: Path) -> None:
    prepare(url := f"sqlite:///{tmp_path}/ledger.db")
    program = "import sys; from tests.acceptance.crash.story import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, url, str(tmp_path / "diary")],
        cwd=ROOT, env={**os.environ, "REDRIVE_CRASH_AT": "settle.after_commit:2:exit"}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 137, done.stderr
    assert not any(words == ["end"] for words in read(tmp_path / "diary"))
