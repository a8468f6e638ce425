"""Sftp: files on a server, over SSH."""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from ...core.policy import RetryPolicy
from ...errors import NotFound, PathInvalid
from ..backend import Capabilities, FileInfo, How
from ..body import Body
from ..errors import copy_outcome
from ..reader import open_reader
from . import operations
from .connection import ConnectMode, PendingRequest, SftpConnection, SshLogin, from_ssh

if TYPE_CHECKING:
    import asyncssh

T = TypeVar("T")

PIECE_BYTES = 2 * 1024 * 1024
"""Bytes of one operation, which asyncssh splits into many parallel requests."""
PIECES_IN_FLIGHT = 2
"""Pieces sent at a time. 4 MiB with a round trip of 50 ms allow 80 MB/s."""
PAGE_ENTRIES = 1000
"""Entries of a listing fetched at a time."""
MAX_NAME_BYTES = 255


class Sftp:
    """Files on a server, over SSH. Threads may share it. A forked child connects again.

    Only connecting is retried. A file is written to a temporary file next to its path and then
    renamed.

    Args:
        name: Name in messages.
        username: Default: the current user.
        private_key: File with the private key. Without key and password, the SSH agent and your
            own keys are used.
        known_hosts: File with the keys of known servers. Default: your own.
        any_host_key: Accept any server. For tests.
        root: Folder on the server, which must exist. Default: the folder after the login.
        timeout: Seconds for connecting, and for each request.
        retry: Retries of connecting. Default: 3 attempts, 2 to 10 s apart.
    """

    # As OpenSSH has them. A server without its extensions fails when it writes atomically.
    capabilities = Capabilities(
        atomic_write=True,
        exclusive_create=True,
        atomic_move=True,
        native_copy=False,
        empty_folders=True,
    )

    def __init__(
        self,
        name: str = "sftp",
        /,
        *,
        host: str,
        port: int = 22,
        username: str | None = None,
        password: str | None = None,
        private_key: str | None = None,
        passphrase: str | None = None,
        known_hosts: str | None = None,
        any_host_key: bool = False,
        root: str = ".",
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.name = name
        self.root = root.rstrip("/") or "/"
        login = SshLogin(
            host, port, username, password, private_key, passphrase, known_hosts, any_host_key
        )
        self._connection = SftpConnection(login, retry, timeout, name)

    def read(self, path: str, /) -> BinaryIO:
        file, size = self._run(path, operations.open_for_reading, self._locate(path))
        to_storage_error = partial(from_ssh, path=path, backend=self.name)
        stream = _SftpStream(file, size, self._connection)
        return open_reader(stream, to_storage_error, window=PIECE_BYTES)

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        target = self._locate(path)
        if how == "create":
            self._run(path, operations.check_absent, target)
        temporary, file = self._run(
            path, operations.open_temporary, self.root, target, writing=True
        )
        try:
            self._send(path, file, body)
            finish = operations.finish_write
            self._run(path, finish, file, temporary, target, how, writing=True, connect="never")
        except BaseException:
            self._remove_temporary(temporary, file)
            raise

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        for path, attributes in self._list_entries(folder, recursive=recursive):
            if stat.S_ISREG(attributes.permissions or 0):
                yield _file_info(path, attributes)

    def folders(self, folder: str, /) -> Iterator[str]:
        for path, attributes in self._list_entries(folder, recursive=False):
            if stat.S_ISDIR(attributes.permissions or 0):
                yield path

    def info(self, path: str, /) -> FileInfo:
        return _file_info(path, self._run(path, operations.stat_file, self._locate(path)))

    def delete(self, path: str, /) -> None:
        self._run(path, operations.delete, self._locate(path))

    def move(self, source: str, target: str, /) -> None:
        from_, to = self._locate(source), self._locate(target)
        self._run(source, operations.stat_file, from_)
        self._run(target, operations.move, self.root, from_, to, writing=True)

    def copy(self, source: str, target: str, /) -> None:
        from_, to = self._locate(source), self._locate(target)
        self._run(source, operations.stat_file, from_)
        if not self._run(target, operations.copy_on_server, self.root, from_, to, writing=True):
            with self.read(source) as file:
                self.write(target, Body(file), "replace")

    def check(self) -> None:
        self._run("", operations.check_root, self.root)

    def close(self) -> None:
        self._connection.close()

    def _locate(self, path: str) -> str:
        """Return the path on the server."""
        if any(len(name.encode()) > MAX_NAME_BYTES for name in path.split("/")):
            problem = f"a name in it is longer than {MAX_NAME_BYTES} bytes"
            message = f"{self.name}: invalid path {path!r}: {problem}"
            raise PathInvalid(message, path=path, backend=self.name)
        return f"{self.root}/{path}" if path else self.root

    def _run(
        self,
        path: str,
        operation: Callable[..., Awaitable[T]],
        *arguments: Any,
        writing: bool = False,
        connect: ConnectMode = "retry",
    ) -> T:
        """Run an operation with the session and these arguments. The path is for errors."""
        with self._storage_errors(path, writing=writing):
            return self._connection.run(
                lambda session: operation(session, *arguments), connect=connect
            )

    @contextmanager
    def _storage_errors(self, path: str, *, writing: bool) -> Iterator[None]:
        try:
            yield
        except operations.RootMissing as missing:
            message = f"{self.name}: the folder {self.root} is missing on the server"
            raise NotFound(message, path="", backend=self.name) from missing
        except Exception as error:
            storage_error = from_ssh(error, path=path, backend=self.name, writing=writing)
            if storage_error is error:
                raise
            raise copy_outcome(storage_error, error) from error

    def _send(self, path: str, file: asyncssh.SFTPClientFile, body: Body) -> None:
        """Send the body. The next piece is read and sent while the last one is in flight."""
        in_flight: deque[PendingRequest[int]] = deque()
        position = 0
        try:
            for piece in body.pieces(PIECE_BYTES):
                with self._storage_errors(path, writing=True):
                    write = partial(file.write, piece, position)
                    in_flight.append(self._connection.start(write))
                    position += len(piece)
                    if len(in_flight) == PIECES_IN_FLIGHT:
                        self._connection.wait(in_flight.popleft())
            with self._storage_errors(path, writing=True):
                while in_flight:
                    self._connection.wait(in_flight.popleft())
        except Exception:
            for pending in in_flight:
                with suppress(Exception):  # The first error is raised.
                    self._connection.wait(pending)
            raise
        except BaseException:
            for pending in in_flight:
                pending.future.cancel()
            raise

    def _list_entries(self, folder: str, *, recursive: bool) -> Iterator[operations.Entry]:
        self._locate(folder)  # Raises if a name is too long.
        walk = self._run(folder, operations.start_walk, self.root, folder, self.name, recursive)
        while page := self._run(
            folder, lambda _session: walk.next_page(PAGE_ENTRIES), connect="never"
        ):
            yield from page

    def _remove_temporary(self, temporary: str, file: asyncssh.SFTPClientFile) -> None:
        try:
            self._connection.run(
                lambda session: operations.remove_temporary(session, temporary, file),
                connect="once",
            )
        except Exception:
            pass  # The server is offline, which the first error already says.


class _SftpStream:
    """A file on the server, read by sync code. Do not share it between threads."""

    def __init__(
        self, file: asyncssh.SFTPClientFile, size: int, connection: SftpConnection
    ) -> None:
        self._file = file
        self.length = size
        """Total number of bytes when the file was opened."""
        self._connection = connection
        self._position = 0
        self._read_ahead: PendingRequest[bytes] | None = None
        self._last_started: PendingRequest[bytes] | None = None
        """The last read, even if its bytes are no longer needed."""
        self._is_sequential = False

    def read(self, size: int, /) -> bytes:
        """Return up to this number of bytes. The second read in a row starts to read ahead."""
        pending = self._read_ahead or self._start_read(size, self._position)
        self._read_ahead = None
        if self._is_sequential and size >= PIECE_BYTES:
            self._read_ahead = self._start_read(size, self._position + size)
        piece = self._connection.wait(pending)
        self._position += len(piece)
        self._is_sequential = True
        if len(piece) < size:
            self._read_ahead = None  # The end. If the file grows, reading continues from here.
        return piece

    def seek(self, position: int, /) -> None:
        """Continue at this byte. Bytes that were read ahead are dropped."""
        self._position, self._read_ahead, self._is_sequential = position, None, False

    def close(self) -> None:
        """Close the file, without waiting for bytes that were read ahead."""
        if self._last_started is None or self._last_started.future.done():
            self._connection.run(lambda _session: self._file.close(), connect="never")
        else:
            pending = self._last_started.future
            self._connection.start(partial(operations.close_after, self._file, pending))

    def _start_read(self, size: int, position: int) -> PendingRequest[bytes]:
        started = self._connection.start(partial(operations.read, self._file, size, position))
        self._last_started = started
        return started


def _file_info(path: str, attributes: asyncssh.SFTPAttrs) -> FileInfo:
    modified_at = None
    if attributes.mtime is not None:
        modified_at = datetime.fromtimestamp(attributes.mtime, timezone.utc)
    return FileInfo(path, attributes.size or 0, modified_at)
