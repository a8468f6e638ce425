"""Sweeps: those of one ledger, begun, carried out, and steered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.lazy import deferred
from ..db.session import Pool

if TYPE_CHECKING:
    from . import sweep
    from .sweep import Act, Canary, Item, Standing, Step, Sweep
else:
    (sweep,) = deferred(__package__, "sweep")


class Sweeps:
    """What operators do to many dead letters, or partitions, at once. Threads may share one, and so may forked children."""

    def __init__(self, write: Pool, read: Pool, ring: Callable[[], object]) -> None:
        self._write = write
        self._read = read
        self._ring = ring

    def begin(
        self, act: Act, ids: Sequence[int], /, *, actor: str, because: str, rate: float | None = None, canary: int = 0,
        max_replays: int | None = None, selection: Mapping[str, Any] | None = None,
    ) -> Sweep:  # fmt: skip
        """Write down what shall be done, to which dead letters, in this order. `step` carries it out.

        rate: at most so many in a second. canary: so many first; only when all of them have ended well, the rest.
        max_replays: skip what was replayed so often already.
        """
        with self._write.use() as session:
            return sweep.begin(
                session, act, ids, actor=actor, because=because, rate=rate, canary=canary, max_replays=max_replays,
                selection=selection,
            )  # fmt: skip

    def step(self, sweep_id: int, /) -> Step:
        """Do the next of them. Any number of processes may do this at once: each dead letter is acted on once."""
        with self._write.use() as session:
            done = sweep.step(session, sweep_id)
        if done.done:
            self._ring()
        return done

    def move(self, sweep_id: int, verb: str, /, *, actor: str, because: str) -> Sweep:
        """Pause, resume or cancel one. NotAllowed where it does not stand so."""
        with self._write.use() as session:
            return sweep.move(session, sweep_id, verb, actor=actor, because=because)

    def get(self, sweep_id: int, /) -> Sweep | None:
        """One of them; None: there is none of that number."""
        with self._read.use() as session:
            return sweep.get(session.core, sweep_id)

    def list(
        self, *, state: Standing | None = None, acts: Sequence[str] = (), before: int | None = None, limit: int = 100
    ) -> list[Sweep]:
        """The newest first. acts: those only."""
        with self._read.use() as session:
            return sweep.sweeps(session.core, state=state, acts=acts, before=before, limit=limit)

    def count(self, *, acts: Sequence[str] = (), most: int) -> int:
        """Return the number of sweeps, counted up to `most`. acts: those only."""
        with self._read.use() as session:
            return sweep.count(session.core, acts=acts, most=most)

    def items(self, sweep_id: int, /, *, outcome: str | None = None, after: int = -1, limit: int = 100) -> Sequence[Item]:
        """What became of each, in their order."""
        with self._read.use() as session:
            return sweep.items(session.core, sweep_id, outcome=outcome, after=after, limit=limit)

    def jobs(self, sweep_id: int, /) -> dict[int | None, int]:
        """How many of the jobs that it made are in each stored state. Reads all of its items."""
        with self._read.use() as session:
            return sweep.jobs(session.core, sweep_id)

    def canary(self, found: Sweep, /) -> Canary:
        """How the jobs that went first fare."""
        with self._read.use() as session:
            return sweep.canary(session.core, found)
