"""CommandEngine: another engine than the ledger, which runs the commands of an app."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ..ledger.model import DisplayState, NewJob, State
    from ..ledger.model import Job as Row
    from .spec import CommandSpec


@dataclass(frozen=True, slots=True)
class EngineJob:
    """A job as another engine has it. Immutable.

    Attributes:
        id: Id of the job.
        state: State, as the ledger would store it.
        shown: State as people see it.
        due_at: When the next attempt may start.
        attempts: Number of attempts so far.
        reason: Why the last attempt ended as it did.
        error: Last error.
        result: Stored result.
        dead_id: Dead letter that it replays.
    """

    id: str
    state: State
    shown: DisplayState
    due_at: datetime
    attempts: int
    reason: str | None = None
    error: str | None = None
    result: bytes | None = None
    dead_id: int | None = None


class EngineSubmitted(NamedTuple):
    """The job that a job key has after a submission to an engine. Immutable.

    Attributes:
        id: Id of the job.
        kind: Job type.
        key: Job key.
        created: False if the key existed: this is the job that it has.
        is_stopping: That job is running and was asked to stop.
    """

    id: str
    kind: str
    key: str
    created: bool
    is_stopping: bool = False


class CommandEngine(Protocol):
    """Runs commands. Threads, event loops and forked children may share one."""

    def is_used_by(self, spec: CommandSpec, /) -> bool:
        """Return whether the engine runs a command. Otherwise it stays on the ledger."""

    def submit(self, spec: CommandSpec, job: NewJob, /) -> EngineSubmitted:
        """Submit a job, once for its job key."""

    async def asubmit(self, spec: CommandSpec, job: NewJob, /) -> EngineSubmitted:
        """Submit a job, from async code."""

    def find(self, kind: str, job_id: str, /) -> EngineSubmitted | None:
        """Return a submitted job by its id, or None."""

    def read(self, job_id: str, kind: str, key: str, /) -> EngineJob | Row | None:
        """Return a job, from the ledger if it has its end. None: it does not exist yet."""

    def cancel(self, job_id: str, kind: str, key: str, /, *, actor: str, because: str) -> bool:
        """Cancel a job. Return False if it had ended, or was asked to stop before."""

    def close(self) -> None:
        """Disconnect. The next use connects again."""
