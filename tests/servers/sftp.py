"""SFTP for tests: asyncssh's server, which is always available, and OpenSSH's if the machine has `sshd`."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.process import ServerMissing, running, short_folder

SSHD = """
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
MaxStartups 100
"""


@contextmanager
def asyncssh_server() -> Iterator[str]:
    """Yield the options of the backend `sftp` as JSON, for a running server."""
    from tests.servers.sftp_program import PASSWORD, USER  # asyncssh, which unit tests do not need

    program = Path(__file__).with_name("sftp_program.py")
    with short_folder() as folder:
        _keys(folder)
        with running(lambda port: [sys.executable, program, str(port), folder], ready=_greets, folder=folder) as port:
            yield json.dumps({**_common(folder, port), "username": USER, "password": PASSWORD, "root": "/"})


def sshd() -> str | None:
    """Return OpenSSH's server program."""
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def openssh_server() -> Iterator[str]:
    """Yield the same for OpenSSH's server, which runs as the user of the tests."""
    program = sshd()
    if program is None:
        raise ServerMissing("install openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # as root it does not start without it
    with short_folder() as folder:
        _keys(folder)
        config = folder / "config"
        config.write_text(SSHD.format(folder=folder))
        with running(lambda port: [program, "-D", "-e", "-f", config, "-p", str(port)], ready=_greets, folder=folder) as port:
            who = {"username": getpass.getuser(), "private_key": str(folder / "user_key"), "root": str(folder / "files")}
            yield json.dumps(_common(folder, port) | who)


def _keys(folder: Path) -> None:
    import asyncssh  # likewise

    (folder / "files").mkdir()
    for name in ("host_key", "user_key"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(folder / name))
        key.write_public_key(str(folder / f"{name}.pub"))
        (folder / name).chmod(0o600)


def _common(folder: Path, port: int) -> dict[str, Any]:
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    return {"host": "127.0.0.1", "port": port, "known_hosts": str(known)}


def _greets(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return connection.recv(8).startswith(b"SSH-")
    except OSError:
        return False
