"""Connection: one SSH connection and its SFTP session, made when first needed and again when it is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from ...core.policy import RetryPolicy
from ...engine.attempt import current
from ...engine.retry import retry
from ..extra import client
from .loop import Loop

if TYPE_CHECKING:
    import asyncssh

T = TypeVar("T")
Connect: TypeAlias = Literal["tried", "once", "never"]

DEFAULT = RetryPolicy(max_attempts=3, backoff_base=2.0, backoff_max=10.0)
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr", "aes128-ctr")
"""GCM first: three to five times as fast as what is negotiated otherwise, since processors do it themselves."""
CLEARING = 5.0
"""Seconds for each step of clearing up after an error."""
KEEPALIVE = 15.0
"""Seconds of silence after which the server is asked whether it is there; three unanswered, and it is not."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and who asks."""

    host: str
    port: int = 22
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    private_key: str | None = None
    passphrase: str | None = field(default=None, repr=False)
    known_hosts: str | None = None
    any_host_key: bool = False

    def arguments(self) -> dict[str, Any]:
        """What `asyncssh.connect` takes. Of the user's own settings only known_hosts and, where nothing else is given, keys."""
        given: dict[str, Any] = {"host": self.host, "port": self.port, "config": None, "encryption_algs": CIPHERS}
        if self.username is not None:
            given["username"] = self.username
        if self.any_host_key:
            given["known_hosts"] = None
        elif self.known_hosts is not None:
            given["known_hosts"] = self.known_hosts
        if self.private_key is not None:
            given |= {"client_keys": [self.private_key], "agent_path": None}
        elif self.password is not None:
            given |= {"client_keys": None, "agent_path": None}
        return given | {"password": self.password, "passphrase": self.passphrase, "keepalive_interval": KEEPALIVE}


class Begun(NamedTuple, Generic[T]):
    """What is under way over a session."""

    session: asyncssh.SFTPClient
    future: Future[T]


class Connection:
    """The way to the server. Only connecting is tried again: it is the one step that changes nothing there.

    Threads may share it: their requests go over one session, side by side. A forked child connects anew.
    """

    _loop: Loop | None
    _ssh: asyncssh.SSHClientConnection | None
    _sftp: asyncssh.SFTPClient | None

    def __init__(self, address: Address, policy: RetryPolicy | None, timeout: float, name: str) -> None:
        self._address = address
        self._timeout = timeout
        self._name = name
        self._retry = retry(policy or DEFAULT, attempt_timeout=timeout, operation=f"storage.{name}.connect")
        self._forget()

    def run(self, work: Callable[[asyncssh.SFTPClient], Awaitable[T]], /, *, connect: Connect = "tried") -> T:
        """Do something with the session, connecting first where there is no connection; TimeoutError where it takes too long.

        connect: "tried", as the policy says; "once", to clear up after an error for which the caller waits; "never", for what is
        open at the server and gone with its connection: ConnectionError.
        """
        loop, session = self._session(connect)
        limit = self._limit() if connect != "once" else min(self._limit(), CLEARING)
        try:
            return loop.run(lambda: work(session), limit)
        except TimeoutError:
            if limit == self._timeout:
                self._drop(session)  # whatever it waits for, the next one shall not wait behind it
            raise

    def begin(self, work: Callable[[], Awaitable[T]], /) -> Begun[T]:
        """Begin something with what is open at the server, and do not wait; ConnectionError where the connection is gone."""
        loop, session = self._session("never")
        return Begun(session, loop.start(work))

    def end(self, begun: Begun[T], /) -> T:
        """What it gives; TimeoutError where that takes too long from now on.

        Only Ctrl+C cancels it: asyncssh looks after the requests that it has sent side by side if it comes to its end, not else.
        """
        limit = self._limit()
        try:
            return begun.future.result(limit)
        except TimeoutError:
            if limit == self._timeout:
                self._drop(begun.session)
            raise
        except Exception:
            raise
        except BaseException:
            begun.future.cancel()
            raise

    def close(self) -> None:
        """Let go; used again, it connects again."""
        if self._pid != os.getpid():
            self._forget()  # the parent's, who goes on using it
            return
        with self._lock:
            loop, ssh, self._loop, self._ssh, self._sftp = self._loop, self._ssh, None, None, None
        if loop is not None:
            if ssh is not None:
                loop.run(lambda: _closed(ssh), None)
            loop.close()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop, self._ssh, self._sftp = None, None, None

    def _session(self, connect: Connect) -> tuple[Loop, asyncssh.SFTPClient]:
        if self._pid != os.getpid():
            self._forget()
        # Another thread may be connecting, for longer than the deadline around this call lasts.
        left = current().remaining
        if not self._lock.acquire(timeout=-1 if left is None else left):
            raise TimeoutError("no connection in time")
        try:
            if self._loop is None:
                self._loop = Loop(f"redrive-{self._name}")
            if self._sftp is None or self._ssh is None or self._ssh.is_closed():
                if connect == "never":
                    raise ConnectionError("the connection was lost")
                if connect == "once":
                    self._ssh, self._sftp = self._connect(self._loop, CLEARING)
                else:
                    self._ssh, self._sftp = self._retry.call(self._connect, self._loop, self._timeout)
            return self._loop, self._sftp
        finally:
            self._lock.release()

    def _connect(self, loop: Loop, most: float) -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
        module = client("asyncssh", "sftp")

        async def connect() -> tuple[asyncssh.SSHClientConnection, asyncssh.SFTPClient]:
            ssh = await module.connect(**self._address.arguments())
            try:
                return ssh, await ssh.start_sftp_client(path_errors="surrogateescape")
            except BaseException:
                ssh.abort()
                raise

        return loop.run(connect, min(most, self._limit()))

    def _limit(self) -> float:
        """Seconds for a request: its own time-out, or what the deadlines around leave."""
        left = current().remaining
        return self._timeout if left is None else min(self._timeout, left)

    def _drop(self, session: asyncssh.SFTPClient) -> None:
        with self._lock:
            if session is not self._sftp or self._ssh is None or self._loop is None:
                return  # somebody else has dropped it already
            ssh, self._ssh, self._sftp = self._ssh, None, None
            loop = self._loop

        async def abort() -> None:
            ssh.abort()

        loop.run(abort, None)


async def _closed(ssh: asyncssh.SSHClientConnection) -> None:
    ssh.abort()  # not close(): that asks the server, who may never answer
    await ssh.wait_closed()
