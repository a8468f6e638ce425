"""Job: one drive of one key, in the hands of who submitted it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..core.context import clock_around
from ..core.seconds import Seconds, seconds
from ..core.text import pluralise
from ..errors import Dead, LedgerError

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..ledger.record import Job as Row
    from ..ledger.record import Submitted
    from ..ledger.state import Shown

R_co = TypeVar("R_co", covariant=True)

FIRST, GROWTH, LONGEST = 0.002, 1.5, 0.25
"""Seconds between looks at a job that is waited for: soon at first, then rarely. A look is one row by its id."""


class Desk(Protocol):
    """Where commands are handed in: what an app gives them. Threads may share one."""

    @property
    def ledger(self) -> Ledger:
        """Opened at first use."""

    @property
    def stepped(self) -> bool:
        """Nobody works here unless the test says so: waiting would be for ever."""


class Reads(Protocol):
    """Knows what a stored result is."""

    def loaded(self, result: bytes | None, /) -> Any:
        """The result again."""


class Job(Generic[R_co]):
    """Handle to a submitted job.

    `state`, `due` and `attempts` read the ledger each time.

    Threads, event loops and forked children may share one.
    """

    __slots__ = ("_desk", "_due", "_envelope", "created", "id", "key", "kind")

    def __init__(self, desk: Desk, envelope: Reads, submitted: Submitted, due: datetime) -> None:
        self._desk = desk
        self._envelope = envelope
        self._due = due
        self.id = str(submitted.id)
        """Id of the job."""
        self.kind = submitted.kind
        """Job type, the name of the command."""
        self.key = submitted.key
        """Job key."""
        self.created = submitted.created
        """False if the job key existed. This is the job that it has."""

    @property
    def state(self) -> Shown:
        """State of the job: `idle`, `queued`, `running`, `retry_wait`, `done`, `blocked`, `dlq`,
        `replaying` or `discarded`.

        `idle` means that the transaction of the submission is not committed yet. `dlq` means that
        the job is a dead letter.
        """
        row = self._row()
        return "idle" if row is None else row.shown

    @property
    def due(self) -> datetime:
        """When the next attempt may start. For an ended job, when its last attempt was due."""
        row = self._row()
        return self._due if row is None else row.due_at

    @property
    def attempts(self) -> int:
        """Number of attempts so far."""
        row = self._row()
        return 0 if row is None else row.attempts

    def result(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the result of the function.

        Args:
            timeout: Seconds to wait, or a `timedelta`. None: no limit.

        Returns:
            The result, as the annotated type.

        Raises:
            Dead: The job became a dead letter.
            TimeoutError: The job has not ended in time. It continues, and you can wait again,
                unless its transaction was not committed (`idle`).
            LedgerError: The job is done and was pruned. Its result is no longer stored.
        """
        clock = clock_around()
        for pause in self._pauses(timeout):
            clock.sleep(pause)
        return self._ended()  # type: ignore[no-any-return]  # its codec is that of R_co

    async def aresult(self, timeout: Seconds | None = None) -> R_co:
        """Wait for the result of the function, in async code.

        Args:
            timeout: Seconds to wait, or a `timedelta`. None: no limit.

        Returns:
            The result, as the annotated type.

        Raises:
            Dead: The job became a dead letter.
            TimeoutError: The job has not ended in time. It continues, and you can wait again,
                unless its transaction was not committed (`idle`).
        """
        import asyncio  # noqa: PLC0415  # plain programs need none

        clock = clock_around()
        pauses = self._pauses(timeout)
        while (pause := await asyncio.to_thread(next, pauses, None)) is not None:
            await clock.asleep(pause)
        return await asyncio.to_thread(self._ended)

    def _pauses(self, timeout: Seconds | None) -> Iterator[float]:
        """How long to sleep before each further look, until it has ended."""
        clock = clock_around()
        end = math.inf if timeout is None else clock.monotonic() + seconds("timeout", timeout)
        pause = FIRST
        while (row := self._row()) is None or row.state in ("ready", "leased"):
            left = end - clock.monotonic()
            if left <= 0 or self._desk.stepped:
                raise TimeoutError(self._unfinished(row, timeout))
            yield min(pause, left)
            pause = min(pause * GROWTH, LONGEST)

    def _unfinished(self, row: Row | None, timeout: Seconds | None) -> str:
        state = "idle (the transaction that submits it is not committed)" if row is None else row.shown
        if self._desk.stepped:
            return f"{self.kind} job {self.id} is {state}; a sandbox has no worker, so call drain() first"
        if row is None:
            return f"{self.kind} job {self.id} is not committed after {timeout} s; commit its transaction, or it never runs"
        error = f", last error: {_first(row.error)}" if row.error else ""
        return f"{self.kind} job {self.id} is {state} after {timeout} s{error}; the job continues, and you can wait for it again"

    def _row(self) -> Row | None:
        """The job that drives this work now: a replay took the place of one that died."""
        ledger = self._desk.ledger
        row = ledger.get(int(self.id))
        if row is not None and not row.current:
            return ledger.find(self.kind, self.key) or row
        return row

    def _ended(self) -> Any:
        row = self._row()
        if row is None or row.state == "pruned":
            raise LedgerError(f"{self.kind} job {self.id} is done and was pruned; its result is no longer stored")
        if row.state == "done":
            return self._envelope.loaded(row.result)
        letters = self._desk.ledger.dead_letters(job_id=row.id, limit=1)
        letter = letters[0] if letters else None
        reason = "discarded" if row.state == "dropped" else (row.reason or "dead")
        number = str(row.dead_id or "") if letter is None else str(letter.id)
        why = row.error if letter is None else letter.error
        ended = f"is {'a dead letter' if row.shown == 'dlq' else row.shown}: {reason}"
        if reason == "attempts":
            ended = f"{'is blocked' if row.shown == 'blocked' else 'failed'} after {pluralise(row.attempts, 'attempt')}"
        raise Dead(
            f"{self.kind} job {row.id} {ended}" + (f": {_first(why)}" if why else "")
            + (f" (redrive dead show {number})" if number else ""),
            dead_id=number,
            reason=reason,
            error=why,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.kind} {self.key}>"


def _first(error: str) -> str:
    """The line that says what it is; its notes, its cause and its frames come after."""
    return error.partition("\n")[0]
