"""A measurement in a process of its own, so that nothing of another's weighs on it."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 3600


def apart(module: str, *arguments: str, python: str | Path = sys.executable) -> Any:
    """What the program told. RuntimeError says in one line what went wrong."""
    command = [str(python), "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError("it did not finish") from None
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("RATE "):
            return json.loads(line[5:])
    raise RuntimeError((done.stderr.strip().splitlines() or ["it said nothing"])[-1])


def here(module: str, *arguments: str) -> Any:
    """The same in this process, in a tenth of the time: it shows that it works, and its figures mean little."""
    return import_module(module).measured(*arguments)


def tell(found: Any) -> None:
    """What a program found."""
    print("RATE", json.dumps(found), flush=True)
