"""Crash points."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import redrive.ledger
from redrive.ledger import failpoint

TRANSACTIONS = ("transaction", "single_statement", "serialized_snapshot")
"""Methods of a session that reach crash points."""
PACKAGE = Path(redrive.ledger.__file__).parents[1]
SOURCES = (
    *sorted((PACKAGE / "ledger").rglob("*.py")),
    *(PACKAGE / path for path in ("commands/signals.py", "ops/timeline.py", "worker/steps.py")),
)
"""The ledger, and the modules that write steps and signals."""


def test_the_list_has_every_point_of_the_code() -> None:
    named: set[str] = set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "crash_point":
                (argument,) = node.args
                if isinstance(argument, ast.Constant):
                    named.add(str(argument.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TRANSACTIONS:
                argument = node.args[0]
                if source.name == "session.py":  # the methods call each other
                    continue
                assert isinstance(argument, ast.Constant)
                assert isinstance(argument.value, str)
                named |= {f"{argument.value}.before_commit", f"{argument.value}.after_commit"}
    of_workers = {f"{verb}.{step}" for verb in failpoint.WORKER_VERBS for step in ("before_commit", "after_commit")}
    of_messages = {point for point in failpoint.MESSAGE_POINTS if point.startswith("receive.")}
    assert named == set(failpoint.POINTS) | of_workers | of_messages
    assert of_workers <= set(failpoint.WORKER_POINTS)


def test_a_point_does_nothing_without_the_variable() -> None:
    assert failpoint.crash_point is failpoint._nothing
    failpoint.crash_point("submit.before_commit")


PROGRAM = """
from redrive.ledger import NewJob, open_ledger
ledger = open_ledger("sqlite://")
for number in range(3):
    ledger.submit(NewJob("k", str(number)))
    print(number, flush=True)
"""


@pytest.mark.parametrize(
    ("setting", "status", "lines"),
    [
        ("submit.before_commit", 137, 0),
        ("submit.after_commit:2", 137, 1),
        ("submit.before_commit:3:kill", -signal.SIGKILL, 2),
        ("submit.after_commit:exit", 137, 0),
        ("reap.after_commit", 0, 3),
    ],
)
def test_the_process_dies_at_the_point(setting: str, status: int, lines: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=os.environ | {failpoint.VARIABLE: setting}
    )
    assert (done.returncode, len(done.stdout.split())) == (status, lines), done.stderr


@pytest.mark.parametrize(
    "setting", ["", "nowhere", "submit.before_commit:0", "submit.before_commit:x", "submit.before_commit:1:2"]
)
def test_an_invalid_setting_is_rejected(setting: str) -> None:
    with pytest.raises(ValueError, match="REDRIVE_CRASH_AT"):
        failpoint.parse(setting)
