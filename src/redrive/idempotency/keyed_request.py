"""A request under its key in a sync framework: its lease, its scope, and its response."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from ..core.context import ActiveScope
from . import middleware
from .lease import KeyLease, scope_with_key
from .response import RecordedResponse, ResponseRecording

if TYPE_CHECKING:
    from .middleware import MiddlewareRules


class KeyedRequest:
    """A request whose response is stored under a key. Belongs to the request."""

    def __init__(self, rules: MiddlewareRules, lease: KeyLease | None = None) -> None:
        self.lease = lease
        """None: the key is not begun yet, or the response comes from elsewhere."""
        self._rules = rules

    @property
    def is_running(self) -> bool:
        """Whether the key is begun and not settled."""
        return self.lease is not None and not self.lease.is_settled

    @contextmanager
    def in_scope(self) -> Iterator[None]:
        """Run code of the application under the key: `current().key` returns it."""
        entered = None if self.lease is None else ActiveScope(scope_with_key(self.lease.key))
        try:
            yield
        finally:
            if entered is not None:
                entered.leave()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run code of the application under the key. An error frees the key."""
        try:
            with self.in_scope():
                yield
        except BaseException as error:
            if self.lease is not None:
                self.lease.fail(error)
            raise

    @property
    def max_body(self) -> int:
        """Maximum number of bytes of a stored body."""
        return self._rules.max_body

    def settle(self, response: RecordedResponse, /) -> None:
        """Store the response or free the key, as the status decides."""
        if self.lease is not None:
            self._rules.settle(self.lease, response)

    def free(self) -> None:
        """Free the key: the response is not complete."""
        if self.lease is not None:
            self.lease.free()


class RecordedStream:
    """The body of a response, between the application and the server. Belongs to the request.

    The server iterates it and then closes it. If it closes early, its client has disconnected. The
    rest of the body is then read here, because an application that stopped half way would free its
    key, and a retry would run it a second time.
    """

    def __init__(
        self,
        request: KeyedRequest,
        recording: ResponseRecording,
        pieces: Iterator[bytes],
        close: Callable[[], object] | None = None,
        withheld: deque[bytes] | None = None,
        /,
    ) -> None:
        """Create the stream of a response that has started, or starts with its first piece.

        Args:
            request: The request.
            recording: The recording of the response.
            pieces: The body, as the application returned it.
            close: Closes the body, after the server has closed this stream.
            withheld: Recorded pieces that were not sent. The caller may remove them.
        """
        self._request = request
        self._recording = recording
        self._pieces = pieces
        self._close = close
        self._withheld = deque() if withheld is None else withheld
        self._has_ended = False

    def withhold(self, *, is_whole: bool) -> None:
        """Read pieces that wait until the response is stored, or up to the first that may be sent.

        Args:
            is_whole: The application has produced the whole body: all of it is read.
        """
        while True:
            piece = self._read()
            if piece is None:
                return
            self._withheld.append(piece)
            if not is_whole and not self._recording.is_withheld:
                return

    def take_withheld(self) -> list[bytes] | None:
        """Return all pieces of a response that has ended. None: it has not."""
        if not self._has_ended:
            return None
        pieces = list(self._withheld)
        self._withheld.clear()
        return pieces

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._withheld:
            return self._withheld.popleft()
        piece = self._read()
        if piece is None:
            raise StopIteration
        return piece

    def _read(self) -> bytes | None:
        """Return the next piece, or settle the key and return None."""
        if self._has_ended:
            return None
        with self._request.active():
            try:
                for piece in self._pieces:
                    if piece:
                        self._recording.add(piece)
                        return piece
            except BaseException:
                self._has_ended = True
                raise
            self._has_ended = True
            if self._recording.has_started:
                self._request.settle(self._recording.response())
            elif self._request.is_running:  # the server reports the missing status
                self._request.free()
        return None

    def close(self) -> None:
        """End the response. If the client has disconnected, read the rest of it first."""
        try:
            self._read_to_end()
        finally:
            close, self._close = self._close, None
            if close is not None:
                close()

    def _read_to_end(self) -> None:
        ends_at = monotonic() + middleware.DISCONNECTED_SECONDS
        while not self._has_ended and self._request.is_running:
            if monotonic() >= ends_at:  # such as an endless stream
                self._has_ended = True
                self._request.free()
            else:
                self._read()

    def __del__(self) -> None:
        # A server or a middleware that does not call `close` must not hold the key for ever. The
        # garbage collector may run anywhere, so the ledger is not called from here.
        lease = self._request.lease
        if lease is not None and not lease.is_settled:
            lease.stop_renewing()
