"""Keeps the servers of a parallel run: one of each for all its processes.

pytest starts it (`python -m tests.servers.keeper`) and reads its address from its output. A process that needs a server connects
there, sends the server's name and receives its URL. When its input ends, it stops the servers and deletes their folders. This
also happens after a SIGKILL of the run.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import IO

from tests.servers.process import ServerMissing, short_folder
from tests.servers.starters import STARTERS

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 60


class Kept:
    """One server, started, held and stopped by its own thread, because it dies with that thread."""

    def __init__(self, name: str, end: threading.Event) -> None:
        self._name = name
        self._end = end
        self.address: Future[str] = Future()
        self.thread = threading.Thread(target=self._hold, name=name)
        self.thread.start()

    def _hold(self) -> None:
        try:
            with STARTERS[self._name]() as address:
                self.address.set_result(address)
                self._end.wait()
        except BaseException as failed:
            if self.address.done():
                raise
            self.address.set_exception(failed)


def reply_with(address: Future[str]) -> bytes:
    """Return the response: a URL, or the reason why there is none."""
    failed = address.exception()
    if failed is None:
        return json.dumps({"address": address.result()}).encode()
    kind = "missing" if isinstance(failed, ServerMissing) else "broken"
    return json.dumps({kind: str(failed) or repr(failed)}).encode()


def keep(run: IO[bytes]) -> None:
    """Serve until the input ends, which is the end of the run."""
    kept: dict[str, Kept] = {}
    end = threading.Event()
    try:
        with short_folder() as folder, socket.socket(socket.AF_UNIX) as door:
            door.bind(str(folder / "door"))
            door.listen(64)
            print(folder / "door", flush=True)
            while run.fileno() not in select.select([run.fileno(), door.fileno()], [], [])[0]:
                asked, _ = door.accept()
                name = asked.recv(64).decode()
                if name not in kept:
                    kept[name] = Kept(name, end)
                kept[name].address.add_done_callback(lambda address, asked=asked: answer(asked, address))  # type: ignore[misc]
    finally:
        end.set()
        for each in kept.values():
            each.thread.join()


def answer(asked: socket.socket, address: Future[str]) -> None:
    with asked:
        try:
            asked.sendall(reply_with(address))
        except OSError:
            pass  # the client has disconnected


class Keeper:
    """The server process, as pytest sees it. It belongs to the process that created it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,  # Ctrl+C in the terminal is for pytest
        )
        assert self._process.stdout is not None
        self.door = self._process.stdout.readline().decode().strip()
        """The address to connect to."""
        if not self.door:
            raise RuntimeError(f"the servers' keeper did not start: it ended with {self._process.wait()}")

    def close(self) -> None:
        """Stop all servers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(STOP_SECONDS)


def ask(door: str, name: str) -> str:
    """Return the server's URL. The first request starts the server. ServerMissing names the way to get one."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(door)
        asking.sendall(name.encode())
        said = b"".join(iter(lambda: asking.recv(4096), b""))
    found: dict[str, str] = json.loads(said or '{"broken": "the keeper of the servers is gone"}')
    if "missing" in found:
        raise ServerMissing(found["missing"])
    if "broken" in found:
        raise RuntimeError(f"{name} did not start: {found['broken']}")
    return found["address"]


if __name__ == "__main__":
    with os.fdopen(0, "rb", buffering=0) as given:
        keep(given)
