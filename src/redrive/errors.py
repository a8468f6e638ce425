"""The exceptions of Redrive. A call that gives up raises the caller's own exception.

RedriveError
├── AttemptTimeout (also TimeoutError)   an attempt timed out, or had no time left to start
├── MemoryLimitExceeded (also MemoryError) a job used more than its `memory_limit=`
├── Rejected                             `reject=` rejected a result; has it
├── BreakerOpen                          not called, the circuit breaker is open; has retry_at
├── KeyRefused                           an idempotency key was rejected
│   ├── KeyBusy                          another caller runs under it; has retry_at
│   ├── KeyConflict                      it was used for another request
│   └── KeyFailed                        its first use failed permanently; has the stored error
├── BadReport                            the report of a batch sender is not valid; has it
├── Dead                                 the job became a dead letter; has its id and its error
├── Cancelled                            the job was cancelled
├── Refused                              the receiver of a batch rejected it, or one item
├── BufferClosed                         a send buffer is closed; has `sent`
├── PollerClosed                         a shared poller is closed
├── NotReady                             wait_until_ready: late, or failed (`.unavailable`)
├── Incomplete                           data of some days is missing; has the gaps
├── LeaseLost                            another worker has this job now
├── NotAllowed                           an operator action was rejected
│   └── Drift                            the ledger changed after the plan was made
├── MissingRight                         the operator has no right for this act or job type
├── LedgerError                          the database is not in a valid state
│   ├── LedgerUnavailable                it cannot be reached, is busy or rejects writes; transient
│   │   └── LedgerRemoved                its SQLite file was removed or replaced while in use
│   └── SchemaMismatch                   another schema version, or tables of another program
├── EngineError                          another engine, such as Temporal, refused a request
│   └── EngineUnavailable                it cannot be reached or is busy; transient
└── StorageError                         a file could not be read or written; has path and backend
    ├── NotFound                         there is no such file
    ├── AlreadyExists                    the file to create exists
    ├── Denied                           permission, token, or a lock of another program
    ├── Unavailable                      the backend cannot be reached or does not work; transient
    ├── Damaged                          a file of a run is gone or has changed
    └── PathInvalid                      the path is not valid

Raised by your own handlers. `except RedriveError` does not catch them:
Again(after=...)   Stop("because")   Blocked("because", until=...)

SignalTimeout (a Stop, and a TimeoutError): the signal of `current().wait_for(...)` did not arrive.
Suspended (a BaseException) ends an attempt that sleeps or waits. Do not catch it.

Misuse is a TypeError or ValueError, at decoration where possible. DirectCall and BlockingCall are
warnings under RedriveWarning.
"""

from __future__ import annotations

from copyreg import __newobj__  # type: ignore[attr-defined]  # as pickle's own default
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class RedriveWarning(UserWarning):
    """Base class of warnings: the code works, but is probably not intended. Each is issued once."""


class DirectCall(RedriveWarning):
    """A command was called instead of submitted, so that it ran without key and ledger.

    Use `.submit(...)`, or `.run(...)` if you mean it.
    """


class BlockingCall(RedriveWarning):
    """A sync method was called in an event loop, which it blocks. Use its async variant."""


class RedriveError(Exception):
    """Base class of the exceptions that Redrive raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By its arguments and attributes: the default calls __init__ without keyword arguments.
        # An exception that cannot be unpickled breaks a whole process pool.
        return __newobj__, (type(self), *self.args), self.__dict__


class Final(Exception):  # no error of its own, only what four others have in common
    """Common base of exceptions that no retry in process repeats, whatever `on=` says."""


class AttemptTimeout(RedriveError, TimeoutError):
    """An attempt timed out, or could not start because its deadline had passed."""


class MemoryLimitExceeded(RedriveError, MemoryError):
    """An attempt in a process needed more memory than the `memory_limit=` of its command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, self.__dict__  # MemoryError refuses `__newobj__`


class Rejected(RedriveError):
    """A result was rejected by `reject=` or `attempt.reject()`, and no attempt is left.

    Args:
        because: Reason.
        result: The last result.
    """

    def __init__(self, because: str = "the result was rejected", /, *, result: Any = None) -> None:
        super().__init__(because)
        self.result = result


class BreakerOpen(RedriveError, Final):
    """The function was not called, because its circuit breaker is open. Never retried.

    Attributes:
        retry_at: When a probe is let through.
    """

    def __init__(self, message: str, /, *, retry_at: datetime) -> None:
        super().__init__(message)
        self.retry_at = retry_at


class KeyRefused(RedriveError):
    """Base class of errors of an idempotency key.

    Attributes:
        key: The idempotency key.
    """

    def __init__(self, message: str, /, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class KeyBusy(KeyRefused):
    """Another caller runs under this idempotency key.

    Attributes:
        key: The idempotency key.
        retry_at: When to retry.
    """

    def __init__(self, message: str, /, *, key: str, retry_at: datetime) -> None:
        super().__init__(message, key=key)
        self.retry_at = retry_at


class KeyConflict(KeyRefused):
    """The idempotency key was used for a different request."""


class KeyFailed(KeyRefused):
    """The first use of this idempotency key failed permanently.

    Attributes:
        key: The idempotency key.
        error: The stored error.
    """

    def __init__(self, message: str, /, *, key: str, error: dict[str, Any]) -> None:
        super().__init__(message, key=key)
        self.error = error


class BadReport(RedriveError):
    """The report of a batch sender is not valid. No part of it was counted.

    Attributes:
        report: What the sender returned.
    """

    def __init__(self, message: str, /, *, report: Any) -> None:
        super().__init__(message)
        self.report = report


class Dead(RedriveError):
    """The job became a dead letter. Raised by `job.result()`.

    Attributes:
        dead_id: Id of the dead letter.
        reason: Why the job gave up.
        error: The last error with its place in the code.
    """

    def __init__(
        self, message: str, /, *, dead_id: str, reason: str, error: str | None = None
    ) -> None:
        super().__init__(message)
        self.dead_id = dead_id
        self.reason = reason
        self.error = error


class Cancelled(RedriveError):
    """The job was cancelled. Raised by `job.result()`, and by `submit` while it is asked to stop.

    Attributes:
        job_id: Id of the job.
    """

    def __init__(self, message: str, /, *, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class Refused(RedriveError):
    """The receiver of a batch rejected it, or this item. A retry does not help."""


class BufferClosed(RedriveError):
    """A send buffer is closed, or was closed before this item had a response.

    Attributes:
        sent: True if the item may have been sent.
    """

    def __init__(self, message: str, /, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class PollerClosed(RedriveError):
    """A shared poller is closed, or was closed before a signal arrived."""


class NotReady(RedriveError):
    """A service was not ready in time.

    Attributes:
        unavailable: True if it could not be reached, or said that it is not ready. False if it
            failed.
    """

    def __init__(self, message: str, /, *, unavailable: bool) -> None:
        """Say whether the service was unavailable."""
        super().__init__(message)
        self.unavailable = unavailable


class Incomplete(RedriveError):
    """Data of some days is missing.

    Attributes:
        gaps: The missing days, with the reasons.
    """

    def __init__(self, message: str, /, *, gaps: list[Any]) -> None:
        super().__init__(message)
        self.gaps = gaps


class LeaseLost(RedriveError):
    """Another worker or caller has this job or key now. Stop working on it."""


class NotAllowed(RedriveError):
    """An operator action was rejected. Nothing was changed."""


class Drift(NotAllowed):
    """The ledger changed after the plan was made. Nothing was changed."""


class MissingRight(RedriveError):
    """The operator has no right for this act, or for this job type. Nothing was changed."""


class LedgerError(RedriveError):
    """The ledger's database is not in a valid state."""


class LedgerUnavailable(LedgerError):
    """The ledger's database cannot be reached, is busy or rejects writes.

    A job that raises it is retried, and that does not count as an attempt.

    Attributes:
        sent: True if the operation may have been executed. False if it was certainly not.
        stale: True if an idle connection was broken. A new one may work.
    """

    def __init__(self, message: str, /, *, sent: bool = False, stale: bool = False) -> None:
        """Set whether the operation may have been executed, and a new connection may help."""
        super().__init__(message)
        self.sent = sent
        self.stale = stale


class LedgerRemoved(LedgerUnavailable):
    """The ledger's file was removed or replaced while it was open.

    If it was removed, stop all programs that use it and restore the file. If it was replaced,
    restart the program.
    """


class SchemaMismatch(LedgerError):
    """The ledger has another schema version, or the tables belong to another program.

    Attributes:
        found: Revision of the database, if it is one of Redrive.
        wanted: Revision that this code needs. None if the tables are not Redrive's.
    """

    def __init__(
        self, message: str, /, *, found: str | None = None, wanted: str | None = None
    ) -> None:
        """Name both revisions."""
        super().__init__(message)
        self.found = found
        self.wanted = wanted


class EngineError(RedriveError):
    """Another engine that runs commands, such as Temporal, refused a request."""


class EngineUnavailable(EngineError):
    """The engine cannot be reached, or is busy. A retry may succeed."""


class StorageError(RedriveError):
    """A file could not be read or written.

    Attributes:
        path: Path within the backend. Empty for the backend as a whole.
        backend: Name of the backend in the configuration.
    """

    def __init__(self, message: str, /, *, path: str, backend: str) -> None:
        """Name the file and its backend."""
        super().__init__(message)
        self.path = path
        self.backend = backend


class NotFound(StorageError):
    """There is no such file, or its container is missing."""


class AlreadyExists(StorageError):
    """The file to create exists."""


class Denied(StorageError):
    """The backend denies access: permission, token, or a lock of another program."""


class Unavailable(StorageError):
    """The backend cannot be reached or does not work. Transient, but all retries are used up."""


class Damaged(StorageError):
    """A file of a run is gone, or its bytes have changed."""


class PathInvalid(StorageError):
    """The path is not valid."""


class Again(Final):  # a handler's word, not an error of ours
    """Raised by a handler: retry this job later, without an error.

    Args:
        because: Reason, for the log records.
        after: Seconds until the next attempt. Default: the policy's backoff.
        free: If True, this does not count as an attempt.
    """

    def __init__(
        self, because: str = "", /, *, after: float | timedelta | None = None, free: bool = False
    ) -> None:
        super().__init__(because)
        self.after = after
        self.free = free


class Stop(Final):  # a handler's word, not an error of ours
    """Raised by a handler: do not retry. The job becomes a dead letter.

    Args:
        because: Reason. It is stored with the dead letter.
    """

    def __init__(self, because: str, /) -> None:
        super().__init__(because)


class SignalTimeout(Stop, TimeoutError):
    """The signal of `current().wait_for(...)` did not arrive in time.

    It is raised in each later attempt, too. A function that does not catch it becomes a dead
    letter.
    """


class Suspended(BaseException):
    """Ends an attempt that sleeps or waits for a signal. The job continues later.

    It is not an `Exception`, so that `except Exception` does not stop it. Do not catch it. An
    attempt that did is suspended all the same.

    Args:
        act: What suspended it.
    """

    def __init__(self, act: str, /) -> None:
        super().__init__(act)


class Blocked(Final):  # a handler's word, not an error of ours
    """Raised by a handler: the work needs something from outside before it can continue.

    The job becomes a dead letter in state `blocked`. It is replayed when `until` has passed, or by
    an operator.

    Args:
        because: Reason. It is stored with the dead letter.
        until: Time after which the job is replayed automatically.
        systemic: For extractions: the whole source is blocked, not one customer. The source is
            paused at once.
    """

    def __init__(
        self, because: str, /, *, until: datetime | None = None, systemic: bool = False
    ) -> None:
        super().__init__(because)
        self.until = until
        self.systemic = systemic
