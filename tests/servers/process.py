"""A server's process: started on a free port, in a short temporary folder, and ended with the test run."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 10
FOLDER = "REDRIVE_TEST_FOLDER"
"""Folder of the servers' files, if not /tmp."""


class ServerMissing(Exception):
    """This machine has no such server. The text names the way to get it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def unprivileged_account() -> pwd.struct_passwd | None:
    """Return the account for programs that do not run as root. None if this process is not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerMissing("no account but root: add a user called nobody")


@contextmanager
def short_folder(owner: pwd.struct_passwd | None = None) -> Iterator[Path]:
    """Yield a temporary folder whose path is short enough for a unix socket (107 characters)."""
    # Not TMPDIR: it may be long, or not readable by the server's account.
    root = os.environ.get(FOLDER) or ("/tmp" if os.access("/tmp", os.W_OK) else None)
    folder = Path(tempfile.mkdtemp(prefix="redrive-", dir=root))
    try:
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Looked up here and not in the child, which must not take a lock of a parent's thread.
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


def die_with_parent() -> None:
    """In the child: end with the thread that started it, also after a SIGKILL. Only on Linux."""
    if _prctl is not None:
        pr_set_pdeathsig = 1
        _prctl(pr_set_pdeathsig, signal.SIGINT)


@contextmanager
def running(
    command: Callable[[int], Sequence[str | Path]],
    *,
    ready: Callable[[int], bool],
    folder: Path,
    owner: pwd.struct_passwd | None = None,
    port: int | None = None,
    patience: float = STOP_SECONDS,
) -> Iterator[int]:
    """Yield the port of the server that `command(port)` starts, once it is `ready`.

    port: a fixed port, for a server that is restarted. patience: seconds for a normal stop.
    """
    given = port
    for _try in range(3):  # another program may take the port before the server binds it
        port = free_port() if given is None else given
        with (folder / "output.log").open("ab") as output:
            child = subprocess.Popen(
                [str(part) for part in command(port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
                start_new_session=True,  # Ctrl+C in the terminal is for pytest, which stops the server
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )
        try:
            if _came_up(child, port, ready):
                yield port
                return
        finally:
            _stop(child, patience)
    raise RuntimeError(f"the server did not start:\n{(folder / 'output.log').read_text()[-2000:]}")


def _came_up(child: subprocess.Popen[bytes], port: int, ready: Callable[[int], bool]) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        if ready(port):
            return True
        time.sleep(0.02)
    return False


def _stop(child: subprocess.Popen[bytes], patience: float) -> None:
    for ask in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if child.poll() is not None:
            return
        child.send_signal(ask)
        try:
            child.wait(STOP_SECONDS if ask == signal.SIGKILL else patience)
        except subprocess.TimeoutExpired:
            continue
