"""Undelivered: claims whose response was lost. Their jobs are leased to this worker, which never heard of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from ..ledger import pardon
from ..ledger.ledger import Ledger
from ..ledger.record import new_token

AGAIN = 1.0
"""Seconds between two looks: the server may still be carrying out a claim whose connection was cut."""


class Undelivered:
    """Gives back, uncharged, the jobs of claims whose outcome is unknown. Belongs to the ledger thread."""

    def __init__(self, ledger: Ledger, worker: str, *, lease: float) -> None:
        """lease: seconds after which a claim that was never heard of has run out by itself."""
        self._ledger, self._worker, self._lease = ledger, worker, lease
        self._until: dict[int, float] = {}
        self._at = 0.0

    @contextmanager
    def claim(self) -> Iterator[int]:
        """Yield the token for a claim. Raising means that what was claimed under it does not run."""
        token = new_token()
        try:
            yield token
        except BaseException:
            self._until[token] = monotonic() + 2 * self._lease
            self._at = 0.0
            raise

    def give_back(self) -> bool:
        """Give back what such claims hold; whether there was anything."""
        now = monotonic()
        if not self._until or now < self._at:
            return False
        with self._ledger.connections.write.use() as session:
            many = pardon.undelivered(session, self._worker, self._until.keys())
        self._until = {token: until for token, until in self._until.items() if until > now}
        self._at = now + AGAIN
        return many > 0
