"""KeyLease: the right of one caller to settle a key, and how it is acquired, sync and async."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.context import Scope, clock_around, end_of, scope_around
from ..core.fault import Rules
from ..engine.settings import error_rules
from ..errors import Blocked, BreakerOpen, KeyBusy, KeyConflict, KeyFailed, LeaseLost
from ..journal.bus import emit, is_wanted
from ..journal.redaction import redact_text
from ..journal.sinks.logging import INFO
from .record import BeginResult, KeyId

if TYPE_CHECKING:
    from ..ledger.db.compiled import Runner
    from .keys import Keys

FreesKey: TypeAlias = Callable[[BaseException], bool]
"""Returns whether the key can be used again after an error."""
MAX_ERROR_CHARS = 2_000
FIRST_PAUSE_SECONDS = 0.005
MAX_PAUSE_SECONDS = 0.25


class KeyLease:
    """The right of one caller to settle a key. Belongs to the call that acquired it."""

    __slots__ = ("_frees_key", "_keep", "_keys", "_run", "fence", "is_settled", "key")

    def __init__(
        self,
        keys: Keys,
        key: KeyId,
        result: BeginResult,
        keep: float,
        frees_key: FreesKey,
        run: Runner | None = None,
    ) -> None:
        """Create the lease of a fresh key. `run` is the transaction of `Keys.begin`."""
        self._keys = keys
        self.key = key
        self.fence = result.fence
        self._keep = keep
        self._frees_key = frees_key
        self._run = run
        self.is_settled = False
        if result.taken_over:
            _log("key_taken_over", key)

    @property
    def max_payload(self) -> int:
        """Maximum number of bytes of a stored result."""
        return self._keys.ledger.max_payload

    def complete(self, result: Any, dump: Callable[[Any], bytes | None], /) -> None:
        """Store the result of the work.

        A result that `dump` cannot turn into bytes is a permanent failure: the work is done, and
        must not run again.
        """
        self.is_settled = True
        try:
            response = dump(result)
            self._keys.complete(self.key, self.fence, response, keep=self._keep, run=self._run)
        except LeaseLost:
            _log("key_lost", self.key)
            raise
        except (TypeError, ValueError) as error:
            error.add_note(
                f"redrive: the work of the key {self.key} is done, but its result cannot be stored"
            )
            self._settle_safely(error, partial(self.fail_permanently, error))
            raise

    def fail(self, error: BaseException, /) -> None:
        """Free the key or store the failure, as the error decides. It raises nothing."""
        if not self.is_settled:
            frees_key = self._frees_key(error)
            self._settle_safely(
                error, self.free if frees_key else partial(self.fail_permanently, error)
            )

    def free(self) -> None:
        """Free the key, so that the next caller begins."""
        self.is_settled = True
        self._keys.free(self.key, self.fence, run=self._run)

    def stop_renewing(self) -> None:
        """Let the lease expire. It neither blocks nor raises."""
        self._keys.renewer.remove(self.key, self.fence)

    def fail_permanently(self, error: BaseException, /) -> None:
        """Store the failure for all later callers."""
        self.is_settled = True
        stored = error_to_store(error)
        self._keys.fail(self.key, self.fence, stored, keep=self._keep, run=self._run)
        _log("key_failed", self.key, error_class=type(error).__name__, error=str(error))

    def _settle_safely(self, error: BaseException, settle: Callable[[], None]) -> None:
        """Settle the key.

        A problem becomes a note, because the caller must see the error of the work.
        """
        try:
            settle()
        except Exception as problem:
            kind = "key_lost" if isinstance(problem, LeaseLost) else "key_not_settled"
            _log(kind, self.key, error=str(problem))
            error.add_note(
                f"redrive: the key {self.key} could not be settled ({problem}); its lease expires "
                "automatically"
            )


def rule_for_freeing(free_on: Rules | None, /) -> FreesKey:
    """Return the rule that decides which errors free a key.

    Retryable errors do, by the standard rule or by `free_on`. An unknown error is stored: the work
    may have been done, and must not run twice. Cancellation and Ctrl+C say nothing about the work,
    and free the key.
    """
    judge = error_rules(free_on, "free_on").classify

    def frees_key(error: BaseException) -> bool:
        if not isinstance(error, Exception) or isinstance(error, (BreakerOpen, Blocked)):
            return True  # the work was not called, or was interrupted
        return judge(error).retryable

    return frees_key


def error_to_store(error: BaseException, /) -> dict[str, Any]:
    """Return the type and the message of an error, redacted and of limited length."""
    kind = type(error)
    is_builtin = kind.__module__ == "builtins"
    message = redact_text(str(error))
    if len(message) > MAX_ERROR_CHARS:
        message = message[:MAX_ERROR_CHARS] + "…"
    return {
        "type": kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}",
        "message": message,
    }


def store_failure(
    keys: Keys, key: KeyId, request_hash: bytes | None, keep: float, error: Exception
) -> None:
    """Store a permanent failure under a key without a holder. A current holder decides itself."""
    try:
        result = keys.begin(key, request_hash, keep=keep)
        if result.outcome == "fresh":
            KeyLease(keys, key, result, keep, lambda _: False).fail_permanently(error)
    except Exception as problem:  # the caller must see the error of the work
        error.add_note(f"redrive: the failure could not be stored under the key {key}: {problem}")


def scope_with_key(key: KeyId, /) -> Scope:
    """Return the current scope with this key, which calls inside inherit."""
    outer = scope_around()
    if outer is None:
        return (math.inf, 1, None, key.key, None)
    return (outer[0], outer[1], outer[2], key.key, outer)


def require_usable(result: BeginResult, key: KeyId, /) -> BeginResult:
    """Return a fresh or completed result, and raise the error of any other."""
    if result.outcome == "fresh":
        return result
    if result.outcome == "completed":
        _log("key_replayed", key)
        return result
    _log("key_refused", key, reason=result.outcome)
    if result.outcome == "busy":
        assert result.retry_at is not None
        raise KeyBusy(
            f"the key {key} is in use by another caller; retry at {result.retry_at:%H:%M:%S} UTC, "
            "or pass wait=",
            key=key.key,
            retry_at=result.retry_at,
        )
    if result.outcome == "conflict":
        raise KeyConflict(
            f"the key {key} was used for another request; a new request needs a new key",
            key=key.key,
        )
    error = result.error or {}
    raise KeyFailed(
        f"the first use of the key {key} failed permanently ({error.get('type')}: "
        f"{error.get('message')}); "
        f'run `redrive keys release "{key}" --because "..."` to allow a retry',
        key=key.key,
        error=error,
    )


def _log(kind: str, key: KeyId, /, **fields: Any) -> None:
    if is_wanted(INFO):
        emit(kind, {"idempotency_key": key.key, **fields})


class BusyWait:
    """The pauses between attempts to begin a busy key. Belongs to one call."""

    def __init__(self, wait: float | None) -> None:
        """Start the wait. It ends after `wait` seconds, or at the deadline of the current scope."""
        remaining = end_of(scope_around()) - clock_around().monotonic()
        self._ends_at = monotonic() + min(wait or 0.0, max(remaining, 0.0))
        self._next_pause = FIRST_PAUSE_SECONDS

    def pause(self) -> float:
        """Return the seconds before the next attempt. 0: the wait is over."""
        pause = min(self._next_pause, self._ends_at - monotonic())
        self._next_pause = min(self._next_pause * 1.5, MAX_PAUSE_SECONDS)
        return max(0.0, pause)


def acquire(
    keys: Keys,
    key: KeyId,
    request_hash: bytes | None,
    keep: float,
    wait: float | None,
    run: Runner | None = None,
) -> BeginResult:
    """Begin a key, and wait up to `wait` seconds while another caller holds it.

    Returns:
        A fresh or completed result.

    Raises:
        KeyBusy: Another caller holds the key.
        KeyConflict: The key was used for another request.
        KeyFailed: The first use of the key failed permanently.
    """
    result = keys.begin(key, request_hash, keep=keep, run=run)
    if result.outcome == "busy" and wait:
        busy_wait = BusyWait(wait)
        while result.outcome == "busy" and (pause := busy_wait.pause()):
            sleep(pause)
            result = keys.begin(key, request_hash, keep=keep, run=run)
    return require_usable(result, key)


async def acquire_async(
    keys: Keys, key: KeyId, request_hash: bytes | None, keep: float, wait: float | None
) -> BeginResult:
    """Do the same as `acquire` without blocking the event loop."""
    result = await _begin_in_thread(keys, key, request_hash, keep)
    if result.outcome == "busy" and wait:
        busy_wait = BusyWait(wait)
        while result.outcome == "busy" and (pause := busy_wait.pause()):
            await asyncio.sleep(pause)
            result = await _begin_in_thread(keys, key, request_hash, keep)
    return require_usable(result, key)


async def _begin_in_thread(
    keys: Keys, key: KeyId, request_hash: bytes | None, keep: float
) -> BeginResult:
    future = keys.executor.submit(keys.begin, key, request_hash, keep=keep)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if not future.cancelled():
            # The thread may begin the key for a cancelled caller: free it afterwards.
            keys.executor.submit(_free_if_fresh, keys, key, future)
        raise


def _free_if_fresh(keys: Keys, key: KeyId, future: Future[BeginResult]) -> None:
    if future.exception() is None and future.result().outcome == "fresh":
        keys.free(key, future.result().fence)


async def settle_in_thread(keys: Keys, settle: Callable[..., None], /, *args: Any) -> None:
    """Settle a key without blocking the event loop. A cancelled caller does not stop it."""
    future = keys.executor.submit(copy_context().run, settle, *args)
    if any(isinstance(argument, GeneratorExit) for argument in args):
        return  # The coroutine is being closed and may not await.
    await asyncio.shield(asyncio.wrap_future(future))
