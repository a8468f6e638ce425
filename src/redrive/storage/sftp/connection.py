"""SftpConnection: one SSH connection with an SFTP session, opened again when it is lost.

`from_ssh` turns errors of asyncssh into storage errors.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from ...core.event_loop_thread import EventLoopThread
from ...core.policy import RetryPolicy
from ...engine.attempt import current
from ...engine.retry import retry
from ...errors import AlreadyExists, Denied, NotFound, PathInvalid, StorageError, Unavailable
from ..backend import import_client
from ..errors import from_os

if TYPE_CHECKING:
    import asyncssh

ERROR_BY_CLASS_NAME: dict[str, tuple[type[StorageError], str]] = {
    "SFTPNoSuchFile": (NotFound, "file {subject} not found"),
    "SFTPNoSuchPath": (NotFound, "file {subject} not found"),
    "SFTPFileAlreadyExists": (AlreadyExists, "file {subject} already exists"),
    "SFTPPermissionDenied": (Denied, "{subject} is not allowed: {reason}"),
    "SFTPWriteProtect": (Denied, "{subject} is not allowed: {reason}"),
    "SFTPLockConflict": (Denied, "{subject} is locked by another program: {reason}"),
    "SFTPNotADirectory": (
        PathInvalid,
        "{subject} cannot be written: a part of it is a file, not a folder",
    ),
    "SFTPFileIsADirectory": (PathInvalid, "{subject} is a folder"),
    "SFTPInvalidFilename": (PathInvalid, "invalid path {subject}: {reason}"),
    "SFTPNoSpaceOnFilesystem": (StorageError, "no space for {subject}: {reason}"),
    "SFTPQuotaExceeded": (StorageError, "no space for {subject}: {reason}"),
    "SFTPNoConnection": (Unavailable, "the connection was lost at {subject}: {reason}"),
    "SFTPConnectionLost": (Unavailable, "the connection was lost at {subject}: {reason}"),
    "PermissionDenied": (Denied, "the server rejected the login: {reason}"),
    "HostKeyNotVerifiable": (
        Denied,
        "the host key cannot be verified: {reason}; add it to known_hosts",
    ),
    "KeyImportError": (Denied, "the private key cannot be read: {reason}"),
    "KeyEncryptionError": (Denied, "the private key cannot be read: {reason}"),
    "DisconnectError": (Unavailable, "the server cannot be reached: {reason}"),
    "ChannelOpenError": (Unavailable, "the server gives no session: {reason}"),
}
"""Error and message by the name of an asyncssh class, or of its nearest base in this table."""


def from_ssh(error: Exception, /, *, path: str, backend: str, writing: bool = False) -> Exception:
    """Return the storage error for an error of the client. Raise it `from` the original error.

    An error that has nothing to do with the server is returned unchanged. In a write, a path
    through a file is invalid, not missing.
    """
    if isinstance(error, StorageError):
        return error
    where = {"path": path, "backend": backend}
    subject = repr(path) if path else "its root"
    reason = str(error) or type(error).__name__
    for cls in type(error).__mro__:
        if cls.__module__.startswith("asyncssh") and cls.__name__ in ERROR_BY_CLASS_NAME:
            error_class, template = ERROR_BY_CLASS_NAME[cls.__name__]
            message = template.format(subject=subject, reason=reason)
            return error_class(f"{backend}: {message}", **where)
    if isinstance(error, TimeoutError):
        return Unavailable(f"{backend}: no answer in time for {subject}", **where)
    if isinstance(error, OSError):
        is_network = isinstance(error, ConnectionError) or type(error).__name__ == "gaierror"
        if error.errno is None or is_network:
            return Unavailable(f"{backend}: the server cannot be reached: {reason}", **where)
        return from_os(error, path=path, backend=backend, writing=writing)
    if type(error).__module__.startswith("asyncssh"):
        return StorageError(f"{backend}: {subject}: the server says: {reason}", **where)
    return error


T = TypeVar("T")
ConnectMode: TypeAlias = Literal["retry", "once", "never"]
"""How to connect if no connection is open.

retry: With the retries of the policy.
once: With one attempt, to clean up after an error for which the caller is waiting.
never: Raise ConnectionError. For files that are open on the server and lost with the connection.
"""

DEFAULT_POLICY = RetryPolicy(max_attempts=3, backoff_base=2.0, backoff_max=10.0)
CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)
"""GCM first: with hardware support it is three to five times as fast as the default choice."""
CLEANUP_SECONDS = 5.0
"""Time for each step of cleaning up after an error."""
KEEPALIVE_SECONDS = 15.0
"""Silence before a keepalive message. After three without an answer the connection is lost."""
CLOSE_GRACE_SECONDS = 1.0
"""Time for requests of a closed connection to end with their own errors."""


@dataclass(frozen=True, slots=True)
class SshLogin:
    """Address of the server, and the credentials."""

    host: str
    port: int = 22
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    private_key: str | None = None
    passphrase: str | None = field(default=None, repr=False)
    known_hosts: str | None = None
    any_host_key: bool = False

    def connect_arguments(self) -> dict[str, Any]:
        """Return the arguments of `asyncssh.connect`.

        The SSH configuration of the user is ignored, apart from known_hosts. Keys of the user are
        used if there is no other credential.
        """
        arguments: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "config": None,
            "encryption_algs": CIPHERS,
            "password": self.password,
            "passphrase": self.passphrase,
            "keepalive_interval": KEEPALIVE_SECONDS,
        }
        if self.username is not None:
            arguments["username"] = self.username
        if self.any_host_key:
            arguments["known_hosts"] = None
        elif self.known_hosts is not None:
            arguments["known_hosts"] = self.known_hosts
        if self.private_key is not None:
            arguments |= {"client_keys": [self.private_key], "agent_path": None}
        elif self.password is not None:
            arguments |= {"client_keys": None, "agent_path": None}
        return arguments


class PendingRequest(NamedTuple, Generic[T]):
    """A request that was started, and the session that it uses."""

    session: asyncssh.SFTPClient
    future: Future[T]


class _Link(NamedTuple):
    """An open connection."""

    ssh: asyncssh.SSHClientConnection
    session: asyncssh.SFTPClient


class SftpConnection:
    """The connection to the server. Only connecting is retried, because it changes nothing there.

    Threads may share it: their requests share one session. A forked child connects again. The
    timeout applies to connecting and to each request.
    """

    _link: _Link | None

    def __init__(
        self, login: SshLogin, policy: RetryPolicy | None, timeout: float, name: str
    ) -> None:
        self._login = login
        self._timeout = timeout
        self._name = name
        self._retrying = retry(
            policy or DEFAULT_POLICY, attempt_timeout=timeout, operation=f"storage.{name}.connect"
        )
        self._reset()

    def run(
        self,
        work: Callable[[asyncssh.SFTPClient], Awaitable[T]],
        /,
        *,
        connect: ConnectMode = "retry",
    ) -> T:
        """Run an operation with the session. Return its result, or raise TimeoutError."""
        session = self._session(connect)
        limit = self._time_limit()
        if connect == "once":
            limit = min(limit, CLEANUP_SECONDS)
        try:
            return self._loop.run(lambda: work(session), limit)
        except TimeoutError:
            if limit == self._timeout:
                self._drop(session)  # The next request must not wait behind this one.
            raise

    def start(self, work: Callable[[], Awaitable[T]], /) -> PendingRequest[T]:
        """Start an operation on an open file. Raise ConnectionError if the connection is lost."""
        return PendingRequest(self._session("never"), self._loop.submit(work))

    def wait(self, pending: PendingRequest[T], /) -> T:
        """Wait for the result of an operation, or raise TimeoutError.

        A timeout does not cancel it: asyncssh cleans up its parallel requests only if the
        operation ends by itself. An interrupt (Ctrl+C) does.
        """
        limit = self._time_limit()
        try:
            return pending.future.result(limit)
        except TimeoutError:
            if limit == self._timeout:
                self._drop(pending.session)
            raise
        except Exception:
            raise
        except BaseException:
            pending.future.cancel()
            raise

    def close(self) -> None:
        """Close the connection. The next operation connects again."""
        if self._pid != os.getpid():
            self._reset()  # The connection belongs to the parent, which keeps using it.
            return
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            self._loop.run(lambda: _abort_and_wait(link.ssh), None)
        self._loop.close(grace_seconds=CLOSE_GRACE_SECONDS)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop = EventLoopThread(f"redrive-{self._name}")
        self._link = None

    def _session(self, connect: ConnectMode) -> asyncssh.SFTPClient:
        if self._pid != os.getpid():
            self._reset()
        # Another thread may be connecting for longer than the deadline around this call.
        remaining = current().remaining
        if not self._lock.acquire(timeout=-1 if remaining is None else remaining):
            raise TimeoutError("no connection in time")
        try:
            if self._link is None or self._link.ssh.is_closed():
                if connect == "never":
                    raise ConnectionError("the connection was lost")
                if connect == "once":
                    self._link = self._connect(CLEANUP_SECONDS)
                else:
                    self._link = self._retrying.call(self._connect, self._timeout)
            return self._link.session
        finally:
            self._lock.release()

    def _connect(self, max_seconds: float) -> _Link:
        asyncssh = import_client("asyncssh", "sftp")

        async def connect() -> _Link:
            ssh = await asyncssh.connect(**self._login.connect_arguments())
            try:
                return _Link(ssh, await ssh.start_sftp_client(path_errors="surrogateescape"))
            except BaseException:
                ssh.abort()
                raise

        return self._loop.run(connect, min(max_seconds, self._time_limit()))

    def _time_limit(self) -> float:
        """Return the seconds for a request: the timeout, or less if a deadline is near."""
        remaining = current().remaining
        return self._timeout if remaining is None else min(self._timeout, remaining)

    def _drop(self, session: asyncssh.SFTPClient) -> None:
        with self._lock:
            link = self._link
            if link is None or link.session is not session:
                return  # Another thread has dropped it.
            ssh, self._link = link.ssh, None

        async def abort() -> None:
            ssh.abort()

        self._loop.run(abort, None)


async def _abort_and_wait(ssh: asyncssh.SSHClientConnection) -> None:
    ssh.abort()  # Not close(), which waits for an answer of the server.
    await ssh.wait_closed()
