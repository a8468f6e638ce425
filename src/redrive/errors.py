"""Every exception of ours. A call that gives up raises the caller's own exception; ours only where there is none to raise.

RedriveError
├── AttemptTimeout (also TimeoutError)   an attempt ran out of time, or had none left to start
├── Rejected                             a result was refused by `reject=`; carries it
├── BreakerOpen                          not called: the breaker is open; carries retry_at
├── KeyRefused                           an idempotency key says no
│   ├── KeyBusy                          another caller is at it now; carries retry_at
│   ├── KeyConflict                      same key, other request
│   └── KeyFailed                        the first use failed for good; carries the stored error
├── BadReport                            a sender's report of a batch makes no sense; carries it
├── Dead                                 the job waited for became a dead letter; carries its id and its error
├── Refused                              the receiver of a batch said no to it, or to one item
├── BufferClosed                         a send buffer is closed; says whether the item may have been sent
├── PollerClosed                         a shared poller is closed; no signal had arrived
├── NotReady                             wait_until_ready: unavailable in time, or failed (`.unavailable`)
├── Incomplete                           data of some days is not there; carries what is missing
├── LeaseLost                            somebody else owns this job now
├── NotAllowed                           an operator's act was refused
│   └── Drift                            what is to be applied is not what was planned
├── LedgerError                          the database is not what it should be
│   ├── LedgerUnavailable                it cannot be reached, is busy or refuses writes; may pass
│   │   └── LedgerRemoved                its file was removed or replaced; restart the program
│   └── SchemaMismatch                   it is older or newer than this code, or another program's
└── StorageError                         a file could not be read or written; carries path and backend
    ├── NotFound                         there is no such file
    ├── AlreadyExists                    it is there already, and was to be created
    ├── Denied                           the backend says no: permission, a token, a lock
    ├── Unavailable                      the backend cannot be reached, or is not well; may pass
    ├── Damaged                          what a run wrote is gone, or is not what it was
    └── PathInvalid                      no file can have this path

Raised by your own handlers, to say what they mean (not under RedriveError, so that `except RedriveError` never eats one):
Again(after=...)   Stop("because")   Blocked("because", until=...)

Misuse is a plain TypeError or ValueError, at decoration where possible. What works, but is probably not meant, is a warning:
DirectCall and BlockingCall, both under RedriveWarning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class RedriveWarning(UserWarning):
    """Something works, but is probably not meant. Each is issued once."""


class DirectCall(RedriveWarning):
    """A command was called, not submitted: it ran without key, ledger or deduplication. `.run(...)` is the same on purpose."""


class BlockingCall(RedriveWarning):
    """A sync method was called inside of an event loop, which it blocks; it has an async twin."""


class RedriveError(Exception):
    """Something that only redrive can say."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By its arguments and attributes: the usual way calls __init__ without what it wants by name, and an exception that
        # cannot be unpickled breaks a whole process pool.
        from copyreg import __newobj__  # type: ignore[attr-defined]  # noqa: PLC0415  # as pickle's own default

        return __newobj__, (type(self), *self.args), self.__dict__


class Final(Exception):  # no error of its own, only what four others have in common
    """What is never tried again in process, whatever `on=` says: a handler's own word, and an open breaker's."""


class AttemptTimeout(RedriveError, TimeoutError):
    """An attempt ran out of time: an async one was cancelled, or one could not start because the deadline had passed."""


class Rejected(RedriveError):
    """A result was refused by `reject=` (or by `attempt.reject()`), and no attempt is left to get a better one."""

    def __init__(self, because: str = "the result was rejected", /, *, result: Any = None) -> None:
        super().__init__(because)
        self.result = result


class BreakerOpen(RedriveError, Final):
    """Not called: too many recent calls failed. Never retried; `retry_at` says when a probe is let through."""

    def __init__(self, message: str, /, *, retry_at: datetime) -> None:
        super().__init__(message)
        self.retry_at = retry_at


class KeyRefused(RedriveError):
    """An idempotency key says no."""

    def __init__(self, message: str, /, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class KeyBusy(KeyRefused):
    """Another caller is working under this key right now; come back at `retry_at`."""

    def __init__(self, message: str, /, *, key: str, retry_at: datetime) -> None:
        super().__init__(message, key=key)
        self.retry_at = retry_at


class KeyConflict(KeyRefused):
    """The same key came with another request."""


class KeyFailed(KeyRefused):
    """The first use of this key failed for good; `error` is what was stored of it."""

    def __init__(self, message: str, /, *, key: str, error: dict[str, Any]) -> None:
        super().__init__(message, key=key)
        self.error = error


class BadReport(RedriveError):
    """What a sender of batches returned makes no sense; `report` is what it was. Nothing of it was counted."""

    def __init__(self, message: str, /, *, report: Any) -> None:
        super().__init__(message)
        self.report = report


class Dead(RedriveError):
    """The job waited for became a dead letter; `error` is what was stored of its last error, with where it was raised."""

    def __init__(self, message: str, /, *, dead_id: str, reason: str, error: str | None = None) -> None:
        super().__init__(message)
        self.dead_id = dead_id
        self.reason = reason
        self.error = error


class Refused(RedriveError):
    """The receiver of a batch said no to it, or to this item. Sending it again would not help."""


class BufferClosed(RedriveError):
    """A send buffer is closed, or was before this item was answered; `sent` says whether it may have been sent."""

    def __init__(self, message: str, /, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class PollerClosed(RedriveError):
    """A shared poller is closed, or was before a signal arrived for this waiter."""


class NotReady(RedriveError):
    """A service did not get ready in time."""

    def __init__(self, message: str, /, *, unavailable: bool) -> None:
        """unavailable: it could not be reached, or said that it is not there yet; False: it is there, and failed."""
        super().__init__(message)
        self.unavailable = unavailable


class Incomplete(RedriveError):
    """Data of some days is not there; `gaps` says which, and why."""

    def __init__(self, message: str, /, *, gaps: list[Any]) -> None:
        super().__init__(message)
        self.gaps = gaps


class LeaseLost(RedriveError):
    """Somebody else owns this job now: stop, and settle nothing."""


class NotAllowed(RedriveError):
    """An operator's act was refused."""


class Drift(NotAllowed):
    """What is to be applied is not what was planned: the world has moved on."""


class LedgerError(RedriveError):
    """The ledger's database is not what it should be."""


class LedgerUnavailable(LedgerError):
    """The ledger's database cannot be reached, is busy or refuses writes for now. Never the fault of a job."""

    def __init__(self, message: str, /, *, sent: bool = False, stale: bool = False) -> None:
        """sent: the operation may have been executed all the same; False: certainly not.

        stale: an idle connection turned out to be useless; a new one may reach the database.
        """
        super().__init__(message)
        self.sent = sent
        self.stale = stale


class LedgerRemoved(LedgerUnavailable):
    """The ledger's file was removed or replaced while it was open. Restart the program."""


class SchemaMismatch(LedgerError):
    """The database is older or newer than this code, or belongs to another program."""

    def __init__(self, message: str, /, *, found: str | None = None, wanted: str | None = None) -> None:
        """found: its revision, where it has one of ours. wanted: what this code is written for; None: it is not ours."""
        super().__init__(message)
        self.found = found
        self.wanted = wanted


class StorageError(RedriveError):
    """A file could not be read or written."""

    def __init__(self, message: str, /, *, path: str, backend: str) -> None:
        """path: within the backend, its root left out; "" for the backend as a whole. backend: its name in the configuration."""
        super().__init__(message)
        self.path = path
        self.backend = backend


class NotFound(StorageError):
    """There is no such file, or the container that should hold it is missing."""


class AlreadyExists(StorageError):
    """It is there already, and was to be created."""


class Denied(StorageError):
    """The backend says no: permission, a token, or somebody else's lock."""


class Unavailable(StorageError):
    """The backend cannot be reached, or is not well. It may pass; what the backend itself was told to retry is spent."""


class Damaged(StorageError):
    """What a run wrote is gone, or its bytes are not those that were written."""


class PathInvalid(StorageError):
    """No file can have this path."""


class Again(Final):  # a handler's word, not an error of ours
    """Raised by a handler: retry this job later, without an error.

    Args:
        because: Reason, for the log records.
        after: Seconds until the next attempt. Default: the policy's backoff.
        free: If True, this does not count as an attempt.
    """

    def __init__(self, because: str = "", /, *, after: float | timedelta | None = None, free: bool = False) -> None:
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

    def __init__(self, because: str, /, *, until: datetime | None = None, systemic: bool = False) -> None:
        super().__init__(because)
        self.until = until
        self.systemic = systemic
