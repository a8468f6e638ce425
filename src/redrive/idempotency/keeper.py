"""Keeper: renews the leases of all keys in hand, from one thread for the whole process, and sweeps old keys now and then."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeAlias

from ..journal.bus import emit
from .record import Ident

SWEEP_SECONDS = 60.0
IDLE_TURNS = 3
"""With nothing in hand for so many turns, the thread ends; the next key starts it again."""

Held: TypeAlias = tuple[Ident, int]


class Keeper:
    """Holds leases as long as the work takes. Threads may share it; a forked child starts with nothing in hand."""

    def __init__(
        self,
        renew: Callable[[Sequence[Held]], list[Held]],
        sweep: Callable[[], object],
        lease: float,
        free_unknown: Callable[[], object] = lambda: None,
    ) -> None:
        """free_unknown: frees keys that may have been begun on a lost connection; raises while the ledger is away."""
        self._free_unknown = free_unknown
        self._renew = renew
        self._sweep = sweep
        self._lease = lease
        self._swept = 0.0
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._held: dict[Held, float] = {}
        self._unknown = False
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def hold(self, ident: Ident, fence: int, /) -> None:
        """Renew this one until it is dropped."""
        if self._pid != os.getpid():
            self._start_over()  # the parent's thread is not here, and its leases are the parent's
        with self._lock:
            self._held[ident, fence] = monotonic() + self._lease / 3
            self._start()

    def watch_unknown(self) -> None:
        """Free keys with an unknown beginning as soon as the ledger answers."""
        if self._pid != os.getpid():
            self._start_over()
        with self._lock:
            self._unknown = True
            self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._run, args=(self._closed,), name="redrive-keeper", daemon=True)
            self._thread.start()

    def drop(self, ident: Ident, fence: int, /) -> None:
        """It is settled, or about to be."""
        self._held.pop((ident, fence), None)

    def close(self) -> None:
        """End the thread; leases in hand run out by themselves."""
        self._closed.set()
        thread = self._thread
        if self._pid == os.getpid() and thread is not None and thread is not threading.current_thread():
            thread.join(5.0)

    def _run(self, closed: threading.Event) -> None:
        idle = 0
        while not closed.wait(self._lease / 6):
            self._turn()
            idle = 0 if self._held or self._unknown else idle + 1
            if idle >= IDLE_TURNS:
                with self._lock:
                    if not self._held and not self._unknown:
                        self._thread = None
                        return

    def _turn(self) -> None:
        now = monotonic()
        try:
            due = [held for held, at in list(self._held.items()) if at <= now]
            if due:
                for lost in self._renew(due):
                    if self._held.pop(lost, None) is not None:
                        emit("key_lost", {"idempotency_key": lost[0].key, "reason": "the lease expired before it was renewed"})
                for held in due:
                    if held in self._held:
                        self._held[held] = now + self._lease / 3
            if self._unknown:
                self._unknown = False  # before the look: another may come meanwhile
                try:
                    self._free_unknown()
                except BaseException:
                    self._unknown = True
                    raise
            if now - self._swept >= SWEEP_SECONDS:
                self._swept = now
                self._sweep()
        except Exception as error:  # the database is away: the next turn tries again, and a lease that runs out is fenced off
            emit("key_renewal_failed", {"error_class": type(error).__name__, "error": str(error)})
