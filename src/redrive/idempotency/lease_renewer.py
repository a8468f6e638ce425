"""LeaseRenewer: a thread that renews the leases of all held keys and removes expired keys."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from ..journal.bus import emit
from .record import KeyId, LeasedKey

SWEEP_SECONDS = 60.0
MAX_IDLE_TURNS = 3
"""After this number of turns without a held key, the thread ends. The next key starts it again."""
CLOSE_SECONDS = 5.0


class LeaseRenewer:
    """Renews leases until their keys are settled.

    Threads may share it. A forked child starts without held keys.
    """

    def __init__(
        self,
        renew: Callable[[Sequence[LeasedKey]], list[LeasedKey]],
        sweep: Callable[[], object],
        lease: float,
        free_unconfirmed: Callable[[], object] = lambda: None,
    ) -> None:
        """Create a renewer. Its thread starts with the first key.

        Leases of `lease` seconds are renewed after a third of them. `renew` returns the lost ones.
        `free_unconfirmed` raises while the ledger is unavailable.
        """
        self._free_unconfirmed = free_unconfirmed
        self._renew = renew
        self._sweep = sweep
        self._lease = lease
        self._swept_at = 0.0
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._renew_at: dict[LeasedKey, float] = {}
        self._has_unconfirmed = False
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, key: KeyId, fence: int, /) -> None:
        """Renew the lease of a key until it is removed."""
        self._reset_after_fork()
        with self._lock:
            self._renew_at[key, fence] = monotonic() + self._lease / 3
            self._start()

    def watch_unconfirmed(self) -> None:
        """Call `free_unconfirmed` as soon as the ledger is available."""
        self._reset_after_fork()
        with self._lock:
            self._has_unconfirmed = True
            self._start()

    def _reset_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._reset()  # the thread and the leases are those of the parent

    def _start(self) -> None:
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(
                target=self._run, args=(self._closed,), name="redrive-keeper", daemon=True
            )
            self._thread.start()

    def remove(self, key: KeyId, fence: int, /) -> None:
        """Stop renewing a key that is about to be settled."""
        self._renew_at.pop((key, fence), None)

    def close(self) -> None:
        """End the thread. Leases that are still held expire."""
        self._closed.set()
        thread = self._thread
        is_own_thread = thread is threading.current_thread()
        if self._pid == os.getpid() and thread is not None and not is_own_thread:
            thread.join(CLOSE_SECONDS)

    def _run(self, closed: threading.Event) -> None:
        idle_turns = 0
        while not closed.wait(self._lease / 6):
            self._turn()
            idle_turns = 0 if self._has_work() else idle_turns + 1
            if idle_turns >= MAX_IDLE_TURNS:
                with self._lock:
                    if not self._has_work():
                        self._thread = None
                        return

    def _has_work(self) -> bool:
        return bool(self._renew_at) or self._has_unconfirmed

    def _turn(self) -> None:
        now = monotonic()
        try:
            self._renew_due(now)
            if self._has_unconfirmed:
                self._has_unconfirmed = False  # before the call, because another key may be added
                try:
                    self._free_unconfirmed()
                except BaseException:
                    self._has_unconfirmed = True
                    raise
            if now - self._swept_at >= SWEEP_SECONDS:
                self._swept_at = now
                self._sweep()
        except Exception as error:
            # The database is unavailable. The next turn retries, and an expired lease is fenced.
            emit("key_renewal_failed", {"error_class": type(error).__name__, "error": str(error)})

    def _renew_due(self, now: float) -> None:
        due = [leased for leased, renew_at in list(self._renew_at.items()) if renew_at <= now]
        if not due:
            return
        for lost in self._renew(due):
            if self._renew_at.pop(lost, None) is not None:
                reason = "the lease expired before it was renewed"
                emit("key_lost", {"idempotency_key": lost[0].key, "reason": reason})
        for leased in due:
            if leased in self._renew_at:
                self._renew_at[leased] = now + self._lease / 3
