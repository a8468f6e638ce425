"""Whether a worker's process is gone: certain, or not said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.worker import process
from redrive.worker.process import gone, identity

linux = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux says who a process is")


def child() -> subprocess.Popen[str]:
    program = "from redrive.worker.process import identity; print(identity(), flush=True); import time; time.sleep(60)"
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


@linux
def test_one_that_lives_is_there_and_a_killed_one_is_not() -> None:
    with child() as started:
        assert started.stdout is not None
        who = started.stdout.readline().strip()
        assert not gone(who)
        os.kill(started.pid, signal.SIGSTOP)
        assert not gone(who), "a stopped one is there"
        os.kill(started.pid, signal.SIGKILL)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert gone(who), "dead, though nobody has collected it yet"
        started.wait()
        assert gone(who)


@linux
def test_another_that_has_its_number_is_not_it() -> None:
    mine = identity()
    assert mine is not None
    assert not gone(mine)
    assert gone(mine.rpartition("/")[0] + "/1")


@linux
@pytest.mark.parametrize("part", [0, 1])
def test_of_another_machine_or_container_nothing_is_said(part: int) -> None:
    mine = identity()
    assert mine is not None
    where, _, began = mine.rsplit("/", 2)
    boot, _, space = where.partition("/")
    elsewhere = f"other/{space}" if part == 0 else f"{boot}/pid:[1]"
    assert not gone(f"{elsewhere}/999999999/{began}")


@linux
@pytest.mark.parametrize("clone", ["host", "machine"])
def test_of_a_cloned_machine_nothing_is_said(clone: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = identity()
    assert mine is not None
    dead = mine.rpartition("/")[0] + "/1"
    assert gone(dead)
    if clone == "host":
        monkeypatch.setattr("socket.gethostname", lambda: "another")
    else:
        (tmp_path / "id").write_text("0123456789abcdef")
        monkeypatch.setattr(process, "MACHINE", tmp_path / "id")
    assert not gone(dead)


@pytest.mark.parametrize("nonsense", [None, 7, "", "a/b", "a/b/c/d", "a/b/c/d/e"])
def test_what_cannot_be_read_is_not_gone(nonsense: object) -> None:
    assert not gone(nonsense)


def test_where_a_system_says_nothing_nobody_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = identity()
    monkeypatch.setattr(process, "PROC", tmp_path)
    assert identity() is None
    assert not gone(mine)


@linux
def test_a_label_tells_who_is_gone() -> None:
    ours = process.label()
    pid, began, known = ours.split(".")
    assert (pid, process.left(ours)) == (str(os.getpid()), False)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert process.left(f"{child.pid}.{began}.{known}")
    assert process.left(f"{pid}.{int(began) + 1}.{known}"), "another process has its number now"
    assert not process.left(f"{child.pid}.{began}.00000000"), "of another machine, or another namespace"
    assert not process.left("c")
    assert not process.left(f"{child.pid}.{began}.")
