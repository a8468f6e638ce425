"""Run a measurement in its own process, so that other measurements do not affect it."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS = 3600


def run_isolated(module: str, *arguments: str, python: str | Path = sys.executable) -> Any:
    """Run a program and return its result.

    Raises:
        RuntimeError: The program failed; the message is one line.
    """
    command = [str(python), "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError("timed out") from None
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RATE "):
            return json.loads(line[5:])
    raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])


def run_inline(module: str, *arguments: str) -> Any:
    """Run the measurement in this process. It is faster, but the figures are not comparable."""
    return import_module(module).measure(*arguments)


def print_result(result: Any) -> None:
    """Print the result of a program for `run_isolated`."""
    print("RATE", json.dumps(result), flush=True)
