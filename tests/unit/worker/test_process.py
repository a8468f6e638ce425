"""A worker's process counts as ended only if that is certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.worker.processes import identity as process
from redrive.worker.processes.identity import is_gone, is_label_gone, process_identity, process_label

linux = pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux identifies processes")


def child() -> subprocess.Popen[str]:
    program = (
        "from redrive.worker.processes.identity import process_identity; print(process_identity(), flush=True); "
        "import time; time.sleep(60)"
    )
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


@linux
def test_a_killed_process_is_gone_and_a_stopped_one_is_not() -> None:
    with child() as started:
        assert started.stdout is not None
        who = started.stdout.readline().strip()
        assert not is_gone(who)
        os.kill(started.pid, signal.SIGSTOP)
        assert not is_gone(who), "it is stopped"
        os.kill(started.pid, signal.SIGKILL)
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(who), "it is a zombie"
        started.wait()
        assert is_gone(who)


@linux
def test_a_process_with_the_same_id_is_another_one() -> None:
    mine = process_identity()
    assert mine is not None
    assert not is_gone(mine)
    assert is_gone(mine.rpartition("/")[0] + "/1")


@linux
@pytest.mark.parametrize("part", [0, 1])
def test_a_process_of_another_machine_or_container_is_never_gone(part: int) -> None:
    mine = process_identity()
    assert mine is not None
    where, _, began = mine.rsplit("/", 2)
    boot, _, space = where.partition("/")
    elsewhere = f"other/{space}" if part == 0 else f"{boot}/pid:[1]"
    assert not is_gone(f"{elsewhere}/999999999/{began}")


@linux
@pytest.mark.parametrize("clone", ["host", "machine"])
def test_a_process_of_a_cloned_machine_is_never_gone(clone: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = process_identity()
    assert mine is not None
    dead = mine.rpartition("/")[0] + "/1"
    assert is_gone(dead)
    if clone == "host":
        monkeypatch.setattr("socket.gethostname", lambda: "another")
    else:
        (tmp_path / "id").write_text("0123456789abcdef")
        monkeypatch.setattr(process, "MACHINE_ID", tmp_path / "id")
    assert not is_gone(dead)


@pytest.mark.parametrize("nonsense", [None, 7, "", "a/b", "a/b/c/d", "a/b/c/d/e"])
def test_an_invalid_identity_is_never_gone(nonsense: object) -> None:
    assert not is_gone(nonsense)


def test_nothing_is_gone_on_a_system_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = process_identity()
    monkeypatch.setattr(process, "PROC", tmp_path)
    assert process_identity() is None
    assert not is_gone(mine)


@linux
def test_a_label_identifies_a_process_that_is_gone() -> None:
    ours = process_label()
    pid, began, known = ours.split(".")
    assert (pid, is_label_gone(ours)) == (str(os.getpid()), False)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert is_label_gone(f"{child.pid}.{began}.{known}")
    assert is_label_gone(f"{pid}.{int(began) + 1}.{known}"), "another process has its id now"
    assert not is_label_gone(f"{child.pid}.{began}.00000000"), "of another machine, or another namespace"
    assert not is_label_gone("c")
    assert not is_label_gone(f"{child.pid}.{began}.")
