"""Worker: takes jobs from the ledger, runs them, and says what became of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from ..core.seconds import Seconds
from ..ledger.ledger import Ledger
from .chore import Chore
from .kind import Kind
from .parking import Parking
from .status import Status

LEASE = 8.0
DRAIN = 30.0


class Worker:
    """Takes jobs of its kinds from the ledger and runs them, until it is told to stop. Making one opens nothing.

    `run` in a thread of yours, or `start` and `close` (a context manager does both). Threads may share it; a forked child
    makes its own.
    """

    def __init__(
        self, ledger: Ledger, kinds: Iterable[Kind] | Mapping[str, Kind], /, *, threads: int = 8, tasks: int = 100,
        drain: Seconds = DRAIN, chores: Sequence[Chore] = (), name: str | None = None, lease: Seconds = LEASE,
        parking: Parking | None = None, keep: Seconds | None = None,
    ) -> None:  # fmt: skip
        """threads: plain functions at once; tasks: async ones at once. drain: how long what runs may take to end when the worker
        stops; what has not ended then goes back, uncharged. lease: how long a job stays ours without a sign of life.
        parking: when an outage parks a kind (default: 10 jobs, 90 %; off: `Parking.disabled()`).
        keep: how long done jobs are kept before they are pruned (default: 30 days; for ever: `FOREVER`).
        """
        raise NotImplementedError

    def run(self, stop: threading.Event | None = None, /) -> None:
        """Work until `stop` is set, or `stop()` is called; then drain. Returns when all is given back."""
        raise NotImplementedError

    def start(self) -> Self:
        """Work in the background; returns when it is ready to take jobs."""
        raise NotImplementedError

    def stop(self, *, now: bool = False) -> None:
        """Take nothing more, end what runs, within `drain`. now: don't wait. Returns at once; safe in a signal handler."""
        raise NotImplementedError

    def close(self) -> None:
        """`stop`, and wait until it has ended."""
        raise NotImplementedError

    @property
    def status(self) -> Status:
        """How it is now."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()
