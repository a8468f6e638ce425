"""What a dispatcher does when the ledger fails: it waits for it, and releases claims whose response
was lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from ..journal.bus import emit
from ..ledger.jobs import refunds
from ..ledger.ledger import Ledger
from ..ledger.record import new_token


class LedgerOutage:
    """A ledger that cannot be reached: logged once, and retried with a growing pause.

    Used by the ledger thread; other threads may read `error`.
    """

    FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 2.0

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._pause = self.FIRST_PAUSE_SECONDS
        self.error: str | None = None
        """The last error; None if the ledger responds."""

    def on_error(self, error: Exception, /) -> float:
        """Note a failure. Return the seconds to wait."""
        if self.error is None:
            fields = {"error": str(error), "error_class": type(error).__name__}
            emit("ledger_trouble", {"worker": self._worker, **fields})
        self.error = f"{type(error).__name__}: {error}"
        pause, self._pause = self._pause, min(self._pause * 2, self.MAX_PAUSE_SECONDS)
        return pause

    def on_success(self) -> None:
        """Note that the ledger responds."""
        self.error, self._pause = None, self.FIRST_PAUSE_SECONDS


class LostClaims:
    """Releases the jobs of claims whose response was lost: they are leased to a worker that does
    not know of them. Used by the ledger thread only.
    """

    RETRY_SECONDS = 1.0
    """Time between two releases: the server may still be executing a claim whose connection was
    cut.
    """

    def __init__(self, ledger: Ledger, worker: str, *, lease_seconds: float) -> None:
        self._ledger, self._worker, self._lease_seconds = ledger, worker, lease_seconds
        self._until_by_token: dict[int, float] = {}
        """By token of a lost claim: until when its leases can exist."""
        self._next_release = 0.0

    @contextmanager
    def new_claim(self) -> Iterator[int]:
        """Yield the token for a claim. If the block raises, the claimed jobs are released later."""
        token = new_token()
        try:
            yield token
        except BaseException:
            self._until_by_token[token] = monotonic() + 2 * self._lease_seconds
            self._next_release = 0.0
            raise

    def release(self) -> bool:
        """Release the leases of lost claims. Return whether there were any."""
        now = monotonic()
        if not self._until_by_token or now < self._next_release:
            return False
        with self._ledger.connections.write.use() as session:
            released = refunds.undelivered(session, self._worker, self._until_by_token.keys())
        self._until_by_token = {
            token: until for token, until in self._until_by_token.items() if until > now
        }
        self._next_release = now + self.RETRY_SECONDS
        return released > 0
