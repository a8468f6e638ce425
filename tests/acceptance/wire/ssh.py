"""Connections of SFTP for each fault. Requests are not retried, so they are not counted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from redrive.storage import Store
from redrive.storage.sftp import Sftp
from tests.acceptance.wire.fault import PATIENT_SECONDS, READ_SECONDS, Act
from tests.acceptance.wire.subject import POLICY
from tests.servers.relay import Relay, Step

HALF = 5_000_000
"""Bytes before and after the middle of a file: more than are in flight at a time."""
OLD, NEW = bytes(2 * HALF), b"\x01" * (2 * HALF)
FOREVER = 5.0
"""Seconds after which a client counts as waiting forever."""
Midway: TypeAlias = Callable[[], None]


class Fault(NamedTuple):
    """One row of the table."""

    name: str
    act: Act
    connections: tuple[Step, ...] = ("pass",)
    """The fate of each new connection. The last applies to all later ones."""
    midway: Literal["drop", "hold"] | None = None
    """The fate of the open connection in the middle of the file."""
    passes: bool = False

    @property
    def patience(self) -> float:
        """Seconds for connecting."""
        return READ_SECONDS if "silent" in self.connections else PATIENT_SECONDS


FAULTS = (
    Fault("connection reset", "read", ("reset",)),
    Fault("reset twice", "read", ("reset", "reset", "pass"), passes=True),
    Fault("cut in the handshake", "read", (500,)),
    Fault("cut in the handshake twice", "write", (500, 500, "pass"), passes=True),
    Fault("no response", "read", ("silent",)),
    Fault("cut in the body", "read", midway="drop"),
    Fault("cut in the body", "write", midway="drop"),
    Fault("silent in the body", "read", midway="hold"),
    Fault("silent in the body", "write", midway="hold"),
)


class Measured(NamedTuple):
    """The connections of one client for one fault."""

    connections: int
    waits: tuple[float, ...]
    error: BaseException | None
    left: str
    """The file afterwards: old, new, half, nothing."""


class Client(NamedTuple):
    """Reads or writes one file, with a callback in the middle."""

    read: Callable[[str, Midway], bytes]
    write: Callable[[str, Midway], object]
    hurry: Midway
    """Set the timeout to READ_SECONDS, after a handshake without a tight limit."""


@contextmanager
def ours(address: dict[str, Any], patience: float) -> Iterator[Client]:
    backend = Sftp("sftp", **address, timeout=patience, retry=POLICY)
    store = Store(backend)

    def read(path: str, midway: Midway) -> bytes:
        with store.read(path) as file:
            head = file.read(10)
            midway()
            return head + file.read()

    def pieces(midway: Midway) -> Iterator[bytes]:
        yield NEW[:HALF]
        midway()
        yield NEW[HALF:]

    def hurry() -> None:
        backend._connection._timeout = READ_SECONDS

    try:
        yield Client(read, lambda path, midway: store.write(path, pieces(midway)), hurry)
    finally:
        backend.close()


@contextmanager
def asyncssh_alone(address: dict[str, Any], patience: float) -> Iterator[Client]:
    import asyncssh

    where = {name: address[name] for name in ("host", "port", "username", "password")}
    limits = {"known_hosts": None, "config": None, "connect_timeout": patience, "login_timeout": patience}

    opened: list[asyncssh.SSHClientConnection] = []

    async def read(path: str, midway: Midway) -> bytes:
        async with (
            asyncssh.connect(**where, **limits) as connection,
            connection.start_sftp_client() as sftp,
            sftp.open(path, "rb", encoding=None) as file,
        ):
            opened.append(connection)
            head = await file.read(10)
            midway()
            rest = await file.read()
            assert isinstance(head, bytes)
            assert isinstance(rest, bytes)
            return head + rest

    async def write(path: str, midway: Midway) -> None:
        async with (
            asyncssh.connect(**where, **limits) as connection,
            connection.start_sftp_client() as sftp,
            sftp.open(path, "wb", encoding=None) as file,
        ):
            opened.append(connection)
            await file.write(NEW[:HALF])
            midway()
            await file.write(NEW[HALF:])

    def run(work: Any) -> Any:
        async def run_until_timeout() -> Any:
            task = asyncio.ensure_future(work)
            done, _ = await asyncio.wait((task,), timeout=FOREVER)
            if not done:
                for connection in opened:
                    connection.abort()  # Nothing else ends the wait.
                await asyncio.wait((task,))
                task.exception()
                raise WaitsForever
            return task.result()

        return asyncio.run(run_until_timeout())

    yield Client(lambda path, midway: run(read(path, midway)), lambda path, midway: run(write(path, midway)), lambda: None)


class WaitsForever(Exception):
    """The client did not return."""


def measure(
    open_client: Callable[[dict[str, Any], float], AbstractContextManager[Client]], options: dict[str, Any], fault: Fault
) -> Measured:
    """Read or write once over a faulty connection, and check the file over a good one."""
    path = f"wire-{uuid.uuid4().hex[:8]}"
    good = Store(Sftp("good", **options))
    good.write(path, OLD)
    error: BaseException | None = None
    with Relay(options["port"], *fault.connections) as relay:
        address = {name: value for name, value in options.items() if name != "known_hosts"}
        with open_client({**address, "port": relay.port, "any_host_key": True}, fault.patience) as client:

            def hold(hurry: Midway = client.hurry) -> None:
                relay.hold()
                hurry()

            midway: Midway = {"drop": relay.drop, "hold": hold, None: lambda: None}[fault.midway]
            try:
                data = client.read(path, midway) if fault.act == "read" else client.write(path, midway)
                assert fault.act == "write" or data == OLD
            except Exception as raised:
                error = raised
            count = relay.counted(POLICY.max_attempts if "silent" in fault.connections and open_client is ours else 1)
            seen = count, tuple(relay.waits)
            relay.go_on()
    left = _describe_file(good, path)
    good.delete(path)
    good.backend.close()
    return Measured(*seen, error, left)


def _describe_file(store: Store, path: str) -> str:
    if not store.exists(path):
        return "nothing"
    data = store.read_bytes(path)
    return "old" if data == OLD else "new" if data == NEW else "half"
