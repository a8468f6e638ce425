"""Regular work on a ledger that workers do beside their jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.lazy import deferred
from .db import secret_names
from .db.connections import Connections
from .model import Settlement
from .store import counters

if TYPE_CHECKING:
    from .jobs import dead_letters, workers
    from .jobs.dead_letters import BulkResult
else:  # see reader.py
    dead_letters, workers = deferred(f"{__package__}.jobs", "dead_letters", "workers")

MAX_UNBLOCKED = 1000


class LedgerMaintenance:
    """Heartbeats, counters and blocked jobs. Threads and forked children may share one."""

    def __init__(self, connections: Connections) -> None:
        self._write = connections.write

    def heartbeat(self, worker: str, info: Mapping[str, Any] | None = None, /) -> datetime:
        """Write the heartbeat of a worker. A worker with a fresh heartbeat has not crashed.

        Returns:
            The time of the ledger's clock.
        """
        with self._write.use() as session:
            return workers.heartbeat(session, worker, info)

    def deregister_worker(self, worker: str, /) -> None:
        """Write that a worker has stopped."""
        with self._write.use() as session:
            workers.deregister(session, worker)

    def unblock(self, *, limit: int = MAX_UNBLOCKED) -> BulkResult:
        """Replay blocked dead letters whose time has come."""
        with self._write.use() as session:
            return dead_letters.unblock(session, limit)

    def fold_counters(self) -> int:
        """Sum up rows of changed counters (on Postgres), and return how many."""
        with self._write.use() as session:
            return counters.fold(session)

    def count_late(self, settlements: Sequence[Settlement], /) -> None:
        """Count settlements that were rejected inside a caller's transaction."""
        with self._write.use() as session, session.transaction("settle"):
            for settlement in settlements:
                counters.add(session, {settlement.kind: {"late": 1}})

    def hide(self, names: Collection[str], /) -> None:
        """Store names of secret fields. Every program that opens the ledger redacts them."""
        with self._write.use() as session:
            secret_names.remember(session, names)
