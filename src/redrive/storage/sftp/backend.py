"""Sftp: files on a server that is reached by SSH."""

from __future__ import annotations

import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from ...core.policy import RetryPolicy
from ...errors import NotFound, PathInvalid
from ..backend import How
from ..body import Body
from ..carried import carried
from ..info import Capabilities, FileInfo
from ..reading import reading
from . import act
from .connection import Address, Begun, Connect, Connection
from .failure import from_ssh
from .walk import Walk

if TYPE_CHECKING:
    import asyncssh

T = TypeVar("T")

PIECE = 2 * 1024 * 1024
"""Bytes that are handed over at a time, in many requests side by side."""
AHEAD = 2
"""Pieces on their way at a time, so that neither side waits for the other: 4 MiB, with 50 ms there and back 80 MB a second."""
PAGE = 1000
"""Entries of a folder taken over at a time."""
LONGEST_NAME = 255


class Sftp:
    """Files on a server that is reached by SSH. Threads may share it; a forked child connects anew.

    Connecting is tried again, as `retry` says; nothing else is. A file is written beside its place and moved there whole.
    """

    capabilities = Capabilities(atomic_write=True, exclusive_create=True, atomic_move=True, native_copy=False, empty_folders=True)
    # As OpenSSH and its like have it; a server without those extensions says so when a file is to be written atomically.

    def __init__(
        self, name: str = "sftp", /, *, host: str, port: int = 22, username: str | None = None, password: str | None = None,
        private_key: str | None = None, passphrase: str | None = None, known_hosts: str | None = None, any_host_key: bool = False,
        root: str = ".", timeout: float = 30.0, retry: RetryPolicy | None = None,
    ) -> None:  # fmt: skip
        """root: the folder on the server, which must be there (default: where one is after logging in).

        private_key: a file; without it and a password, the agent's and your own keys are tried. known_hosts: a file (default:
        your own). any_host_key: don't ask who the server is; for tests. timeout: seconds for connecting, and for each request.
        retry: how connecting is tried again (default: 3 attempts, 2 to 10 s apart).
        """
        self.name = name
        self.root = root.rstrip("/") or "/"
        address = Address(host, port, username, password, private_key, passphrase, known_hosts, any_host_key)
        self._connection = Connection(address, retry, timeout, name)

    def read(self, path: str, /) -> BinaryIO:
        file, size = self._run(path, lambda session: act.open_to_read(session, self._whole(path)))
        return reading(
            _Remote(file, size, self._connection), lambda error: from_ssh(error, path=path, backend=self.name), window=PIECE
        )

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        target = self._whole(path)
        if how == "create":
            self._run(path, lambda session: act.check_absent(session, target))
        temporary, file = self._run(path, lambda session: act.open_beside(session, self.root, target), writing=True)
        try:
            self._send(path, file, body)
            finish = partial(act.finish, file, temporary, target, how)
            self._run(path, finish, writing=True, connect="never")
        except BaseException:
            self._remove(temporary, file)
            raise

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        for path, attrs in self._entries(folder, recursive=recursive):
            if stat.S_ISREG(attrs.permissions or 0):
                yield _info(path, attrs)

    def folders(self, folder: str, /) -> Iterator[str]:
        for path, attrs in self._entries(folder, recursive=False):
            if stat.S_ISDIR(attrs.permissions or 0):
                yield path

    def info(self, path: str, /) -> FileInfo:
        return _info(path, self._run(path, lambda session: act.regular(session, self._whole(path))))

    def delete(self, path: str, /) -> None:
        self._run(path, lambda session: act.delete(session, self._whole(path)))

    def move(self, source: str, target: str, /) -> None:
        from_, to = self._whole(source), self._whole(target)
        self._run(source, lambda session: act.regular(session, from_))
        self._run(target, lambda session: act.move(session, self.root, from_, to), writing=True)

    def copy(self, source: str, target: str, /) -> None:
        from_, to = self._whole(source), self._whole(target)
        self._run(source, lambda session: act.regular(session, from_))
        if not self._run(target, lambda session: act.copy_there(session, self.root, from_, to), writing=True):
            with self.read(source) as file:
                self.write(target, Body(file), "replace")

    def check(self) -> None:
        self._run("", lambda session: act.check_root(session, self.root))

    def close(self) -> None:
        self._connection.close()

    def _whole(self, path: str) -> str:
        if any(len(part.encode()) > LONGEST_NAME for part in path.split("/")):
            message = f"{self.name}: invalid path {path!r}: a name in it is longer than {LONGEST_NAME} bytes"
            raise PathInvalid(message, path=path, backend=self.name)
        return f"{self.root}/{path}" if path else self.root

    def _run(
        self,
        path: str,
        work: Callable[[asyncssh.SFTPClient], Awaitable[T]],
        *,
        writing: bool = False,
        connect: Connect = "tried",
    ) -> T:
        """connect: "never" for what is open at the server: it is gone with its connection."""
        with self._mapped(path, writing=writing):
            return self._connection.run(work, connect=connect)

    @contextmanager
    def _mapped(self, path: str, *, writing: bool) -> Iterator[None]:
        try:
            yield
        except act.RootMissing as missing:
            raise NotFound(
                f"{self.name}: the folder {self.root} is missing on the server", path="", backend=self.name
            ) from missing
        except Exception as error:
            ours = from_ssh(error, path=path, backend=self.name, writing=writing)
            if ours is error:
                raise
            raise carried(ours, error) from error

    def _send(self, path: str, file: asyncssh.SFTPClientFile, body: Body) -> None:
        """All of it; the next piece is read and sent while the one before is on its way."""
        sent: deque[Begun[None]] = deque()
        at = 0
        try:
            for piece in body.pieces(PIECE):
                with self._mapped(path, writing=True):
                    sent.append(self._connection.begin(partial(act.write, file, piece, at)))
                    at += len(piece)
                    if len(sent) == AHEAD:
                        self._connection.end(sent.popleft())
            with self._mapped(path, writing=True):
                while sent:
                    self._connection.end(sent.popleft())
        except Exception:
            for each in sent:
                with suppress(Exception):  # the first error is the one to tell
                    self._connection.end(each)
            raise
        except BaseException:
            for each in sent:
                each.future.cancel()
            raise

    def _entries(self, folder: str, *, recursive: bool) -> Iterator[tuple[str, asyncssh.SFTPAttrs]]:
        self._whole(folder)
        walk = self._run(folder, partial(_walk, self.root, folder, self.name, recursive))
        while page := self._run(folder, lambda _session: walk.page(PAGE), connect="never"):
            yield from page

    def _remove(self, temporary: str, file: asyncssh.SFTPClientFile) -> None:
        try:
            # Over a new connection the file is not open any more; tried once: the caller is waiting for the error.
            self._connection.run(lambda session: act.remove(session, temporary, file), connect="once")
        except Exception:  # the server is gone, and what was raised already says so
            pass


class _Remote:
    """A file on the server, read by plain code. Not shared between threads, as files are not."""

    def __init__(self, file: asyncssh.SFTPClientFile, size: int, connection: Connection) -> None:
        self._file = file
        self.length = size
        """Bytes in all, when it was opened."""
        self._connection = connection
        self._at = 0
        self._next: Begun[bytes] | None = None
        self._last: Begun[bytes] | None = None
        """What was begun last, wanted or not."""
        self._is_sequential = False

    def read(self, size: int, /) -> bytes:
        """So many bytes; whoever asks for a second time will read on, and the next ones are sent for."""
        begun, self._next = self._next or self._begin(size, self._at), None
        if self._is_sequential and size >= PIECE:
            self._next = self._begin(size, self._at + size)
        piece = self._connection.end(begun)
        self._at += len(piece)
        self._is_sequential = True
        if len(piece) < size:
            self._next = None  # the end; should the file grow, it goes on from there
        return piece

    def seek(self, at: int, /) -> None:
        """Go on from this byte; what was sent for ahead is not wanted any more."""
        self._at, self._next, self._is_sequential = at, None, False

    def close(self) -> None:
        """Let go of it. Nobody waits for what was sent for and is not wanted any more."""
        if self._last is None or self._last.future.done():
            self._connection.run(lambda _session: act.close(self._file), connect="never")
        else:
            self._connection.begin(partial(act.close_after, self._file, self._last.future))

    def _begin(self, size: int, at: int) -> Begun[bytes]:
        self._last = self._connection.begin(partial(act.read, self._file, size, at))
        return self._last


async def _walk(root: str, folder: str, name: str, recursive: bool, session: asyncssh.SFTPClient) -> Walk:
    return Walk(session, root, folder, name, recursive=recursive)


def _info(path: str, attrs: asyncssh.SFTPAttrs) -> FileInfo:
    at = None if attrs.mtime is None else datetime.fromtimestamp(attrs.mtime, timezone.utc)
    return FileInfo(path, attrs.size or 0, at)
