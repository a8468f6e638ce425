"""Decorated functions of a script, pickled by value as joblib, dask and ray do: they work in another process with retries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.req("C-1")
SCRIPT = """
import asyncio, sys
import cloudpickle
from redrive import retry

@retry(backoff_base=0, jitter=0)
def timed(failures):
    if failures: raise failures.pop()
    return "timed"

@retry(backoff_base=0, jitter=0, attempt_timeout=None, on=OSError)
def untimed(failures):
    if failures: raise failures.pop()
    return "untimed"

@retry(backoff_base=0, jitter=0)
async def timed_async(failures):
    if failures: raise failures.pop()
    return "timed_async"

@retry(backoff_base=0, jitter=0, attempt_timeout=None)
async def untimed_async(failures):
    if failures: raise failures.pop()
    return "untimed_async"

@retry(backoff_base=0, jitter=0, key="a:ann:b:c:v1", reject=lambda result: result is None, breaker="crm", budget="crm")
def special(failures):
    if failures: raise failures.pop()
    return "special"

@retry(backoff_base=0, jitter=0)
def stream(failures):
    if failures: raise failures.pop()
    yield "stream"

class Service:
    @retry(backoff_base=0, jitter=0)
    def method(self, failures):
        if failures: raise failures.pop()
        return "method"

def use():
    made = []
    for work in (timed, untimed, special, Service().method):
        made.append(work([ConnectionError("down"), ConnectionError("down")]))
    made += stream([ConnectionError("down")])
    for work in (timed_async, untimed_async):
        made.append(asyncio.run(work([ConnectionError("down"), ConnectionError("down")])))
    return made

use()  # event loops and types that a function has met stay behind
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump(use, file)
"""
OTHER = """
import pickle, sys
from redrive import journal
heard = []
journal.subscribe(heard.append, inline=True)
with open(sys.argv[1], "rb") as file:
    use = pickle.load(file)
print(*use())
print(sum(record.kind == "retry" for record in heard))
"""


def run(program: str, path: Path) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_decorated_function_of_a_script_runs_in_another_process(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    run(SCRIPT, tmp_path / "work")
    names = "timed untimed special method stream timed_async untimed_async"
    assert run(OTHER, tmp_path / "work").split("\n")[:2] == [names, "13"], "and sinks of that process hear of its retries"
