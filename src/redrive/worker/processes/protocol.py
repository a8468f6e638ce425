"""Protocol: what a worker and a process of its pool send each other, over a socket.

A message is a pickled tuple after its length. Both ends run the same code.
"""

from __future__ import annotations

import pickle
import socket
import struct
from datetime import datetime
from typing import Any, NamedTuple

from ...ledger.db.address import Address
from ...ledger.model import Lease, Settlement
from ..outcome import JobOutcome
from .reference import FunctionReference

LENGTH = struct.Struct("!Q")
CHUNK_BYTES = 1 << 16


class Startup(NamedTuple):
    """First message to a process: what it imports before its first job."""

    references: dict[str, FunctionReference]
    """By job type."""
    address: Address
    """Of the ledger, for steps. It is opened at first use."""
    max_payload: int


class Ready(NamedTuple):
    """First message of a process."""

    data_bytes: int
    """Memory of the process before its first job."""


class Call(NamedTuple):
    """One attempt.

    Attributes:
        lease: Of the job.
        seconds: Seconds that the attempt may take.
        now: By the ledger's clock.
        memory_limit: Maximum memory of the process, in bytes.
    """

    lease: Lease
    seconds: float
    now: datetime
    memory_limit: int | None


class Reply(NamedTuple):
    """The end of an attempt.

    Attributes:
        result: The stored result.
        outcome: What follows from the error, decided where the error is.
        error_class: Name of the error's class.
        error: Text of the error.
        suspension: The settlement of a job that sleeps or waits. It is in the ledger.
        is_late: The lease was lost when the job was to sleep or wait.
        data_bytes: Memory of the process after the attempt.
    """

    result: bytes | None = None
    outcome: JobOutcome | None = None
    error_class: str = ""
    error: str = ""
    suspension: Settlement | None = None
    is_late: bool = False
    data_bytes: int = 0

    @property
    def has_returned(self) -> bool:
        """Whether the function returned."""
        return not self.error_class


def encode(message: NamedTuple, /) -> bytes:
    """Return a message with its length."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(content)) + content


class Decoder:
    """Collects received bytes until a message is complete. Belongs to one thread."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, received: bytes, /) -> None:
        """Add received bytes."""
        self._buffer += received

    def next(self) -> Any:
        """Remove and return the next message, or None if it is not complete."""
        end = LENGTH.size
        if len(self._buffer) < end:
            return None
        end += LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        content = bytes(memoryview(self._buffer)[LENGTH.size : end])
        del self._buffer[:end]
        return pickle.loads(content)  # noqa: S301  # from our own process


def receive(connection: socket.socket, decoder: Decoder, /) -> Any:
    """Wait for the next message, and return it. None if the other end was closed."""
    while (message := decoder.next()) is None:
        received = connection.recv(CHUNK_BYTES)
        if not received:
            return None
        decoder.feed(received)
    return message
