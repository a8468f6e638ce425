"""asyncssh's SFTP server as a process: `sftp_program.py PORT FOLDER`. The folder has its keys and its files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncssh

USER, PASSWORD = "tester", "let me in"


class Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)


async def serve(port: int, folder: Path) -> None:
    files = folder / "files"

    def session(channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        return asyncssh.SFTPServer(channel, chroot=str(files).encode())

    await asyncssh.create_server(
        Server, "127.0.0.1", port, server_host_keys=[str(folder / "host_key")], sftp_factory=session, authorized_client_keys=None
    )
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
    except KeyboardInterrupt:
        pass  # the signal of the test run
