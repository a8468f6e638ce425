"""Run a benchmark with `--quick`. Figures are not checked, because machines are noisy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.servers.postgres import VARIABLE

ROOT = Path(__file__).resolve().parents[2]


def quick(program: str, out: Path, *arguments: str, postgres: str = "", **environment: str) -> str:
    """Run a benchmark and return its output.

    Args:
        program: File in `benchmarks`.
        out: Directory for page and picture.
        postgres: Address of a running server.
    """
    command = [sys.executable, f"benchmarks/{program}", "--quick", "--out", str(out), *arguments]
    variables = {**os.environ, **environment} | ({VARIABLE: postgres} if postgres else {})
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, encoding="utf-8", timeout=240)
    last = (done.stdout.splitlines() or [""])[-1]
    met = re.fullmatch(r"all \d+ targets met", last)
    assert met or re.match(r"\d+ of \d+ targets missed: ", last), done.stderr
    assert (done.returncode, done.stderr) == (0 if met else 1, "")
    return done.stdout
