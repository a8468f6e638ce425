"""Resumed: a download that goes on where it broke, from the next byte on, of the same version of the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..core.fault import Rule
from ..core.policy import RetryPolicy
from ..engine.retry import retry


class Stream(Protocol):
    """The rest of a file, as a client gives it."""

    def read(self, size: int, /) -> bytes:
        """So many bytes, fewer only at the end."""
        ...

    def close(self) -> object:
        """Let go of the connection."""
        ...


class Cut(ConnectionError):
    """The body ended before the length that its head had promised."""


class Resumed:
    """Reads a file through one stream after another. Not shared between threads, as files are not.

    The client retries requests; a body that breaks is for this loop alone: no error has two owners. Opening again is the
    client's, with its own attempts, and an error on which it spent them ends the loop.
    """

    def __init__(
        self,
        first: Stream,
        length: int,
        opened: Callable[[int], Stream],
        policy: RetryPolicy,
        breaks: tuple[Rule, ...],
        name: str,
        sought: Callable[[int], Stream] | None = None,
    ) -> None:
        """first: open at 0. opened: the same version, from a byte on. breaks: errors of a body that breaks.

        sought: as opened, for whoever seeks and reads little (default: opened).
        """
        self._stream: Stream | None = first
        self.length = length
        """Bytes in all."""
        self._opened = opened
        self._at = 0
        self._read = retry(policy, on=(Cut, *breaks), attempt_timeout=None, operation=f"{name}.read")(self._piece)

        self._sought = opened if sought is None else sought

    def seek(self, at: int, /) -> None:
        """Go on from this byte, of the same version."""
        self.close()
        self._at = at
        self._opened = self._sought

    def read(self, size: int, /) -> bytes:
        """So many bytes, fewer only at the end."""
        if self._at >= self.length:
            return b""
        piece = self._read(min(size, self.length - self._at))
        self._at += len(piece)
        return piece

    def close(self) -> None:
        """Let go of the connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _piece(self, size: int) -> bytes:
        if self._stream is None:
            self._stream = self._opened(self._at)
        try:
            piece = self._stream.read(size)
            if not piece:
                raise Cut(f"the body ended at byte {self._at:,} of {self.length:,}")
        except BaseException:
            self.close()
            raise
        return piece
