"""Hold: a key in hand, from the moment it is fresh to its end; and the ways of getting one, plain and async."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from ..core.context import Scope, clock_around, end_of, scope_around
from ..errors import KeyBusy, KeyConflict, KeyFailed, LeaseLost
from ..journal.bus import emit, wanted
from .failure import Frees, told
from .record import Begun, Ident

if TYPE_CHECKING:
    from ..ledger.statement import Runner
    from .keys import Keys

INFO = 20
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25


class Hold:
    """One holder's right to a key. Belongs to the call that it was given to."""

    __slots__ = ("_frees", "_keep", "_keys", "_run", "fence", "key", "settled")

    def __init__(self, keys: Keys, key: Ident, begun: Begun, keep: float, frees: Frees, run: Runner | None = None) -> None:
        self._keys = keys
        self.key = key
        self.fence = begun.fence
        self._keep = keep
        self._frees = frees
        self._run = run
        self.settled = False
        if begun.taken_over:
            said("key_taken_over", key)

    def answer(self, result: Any, stored: Callable[[Any], bytes | None], /) -> None:
        """Store the answer. One that cannot be stored is a failure for good: the work is done, and must not run again."""
        self.settled = True
        try:
            self._keys.complete(self.key, self.fence, stored(result), keep=self._keep, run=self._run)
        except LeaseLost:
            said("key_lost", self.key)
            raise
        except (TypeError, ValueError) as refusal:
            refusal.add_note(f"redrive: the work of the key {self.key} is done, but its result cannot be stored")
            self._quietly(refusal, partial(self.fail, refusal))
            raise

    def fail(self, error: BaseException, /) -> None:
        """Store the failure for everybody who comes."""
        self.settled = True
        self._keys.fail(self.key, self.fence, told(error), keep=self._keep, run=self._run)
        said("key_failed", self.key, error_class=type(error).__name__, error=str(error))

    def free(self) -> None:
        """Let the next caller begin anew."""
        self.settled = True
        self._keys.free(self.key, self.fence, run=self._run)

    def failed(self, error: BaseException, /) -> None:
        """Free or fail, as the error says. The error itself is the caller's to raise, whatever happens here."""
        if not self.settled:
            self._quietly(error, self.free if self._frees(error) else partial(self.fail, error))

    def _quietly(self, error: BaseException, settle: Callable[[], None]) -> None:
        try:
            settle()
        except Exception as problem:  # the lease runs out by itself; what the caller has to see is the error of the work
            said("key_lost" if isinstance(problem, LeaseLost) else "key_not_settled", self.key, error=str(problem))
            error.add_note(f"redrive: the key {self.key} could not be settled ({problem}); its lease expires automatically")


def scope_of(key: Ident, /) -> Scope:
    """The scope around, with this key handed down to whatever is called inside."""
    outer = scope_around()
    return (math.inf, 1, None, key.key, None) if outer is None else (outer[0], outer[1], outer[2], key.key, outer)


def checked(begun: Begun, key: Ident, /) -> Begun:
    """Fresh or completed; anything else is raised."""
    if begun.outcome == "fresh":
        return begun
    if begun.outcome == "completed":
        said("key_replayed", key)
        return begun
    said("key_refused", key, reason=begun.outcome)
    if begun.outcome == "busy":
        assert begun.until is not None
        raise KeyBusy(
            f"the key {key} is in use by another caller; retry at {begun.until:%H:%M:%S} UTC, or pass wait=",
            key=key.key, retry_at=begun.until,
        )  # fmt: skip
    if begun.outcome == "conflict":
        raise KeyConflict(f"the key {key} was used for another request; a new request needs a new key", key=key.key)
    error = begun.error or {}
    raise KeyFailed(
        f"the first use of the key {key} failed permanently ({error.get('type')}: {error.get('message')}); "
        f'run `redrive keys release "{key}" --because "..."` to allow a retry',
        key=key.key, error=error,
    )  # fmt: skip


def said(kind: str, key: Ident, /, **fields: Any) -> None:
    """In the journal, if anybody listens."""
    if wanted(INFO):
        emit(kind, {"idempotency_key": key.key, **fields})


def store_failure(keys: Keys, key: Ident, request_hash: bytes | None, keep: float, error: Exception) -> None:
    """Write a failure for good under a key that nobody holds; where somebody does by now, it is theirs to say."""
    try:
        begun = keys.begin(key, request_hash, keep=keep)
        if begun.outcome == "fresh":
            Hold(keys, key, begun, keep, lambda _: False).fail(error)
    except Exception as problem:  # what the caller has to see is the error of the work
        error.add_note(f"redrive: the failure could not be stored under the key {key}: {problem}")


class Patience:
    """How long to wait for another holder, and how long between two looks. Belongs to one call."""

    def __init__(self, wait: float | None) -> None:
        # The deadline around holds here too: a wait that does not fit is not slept.
        left = end_of(scope_around()) - clock_around().monotonic()
        self._end = monotonic() + min(wait or 0.0, max(left, 0.0))
        self._next = FIRST_PAUSE

    def pause(self) -> float:
        """Seconds until the next look; 0: no more."""
        left = self._end - monotonic()
        pause, self._next = min(self._next, left), min(self._next * 1.5, LONGEST_PAUSE)
        return max(0.0, pause)


def acquire(
    keys: Keys, key: Ident, request_hash: bytes | None, keep: float, wait: float | None, run: Runner | None = None
) -> Begun:
    """Fresh or completed; raises what else the key says, after waiting for another holder as long as told."""
    begun = keys.begin(key, request_hash, keep=keep, run=run)
    if begun.outcome == "busy" and wait:
        patience = Patience(wait)
        while begun.outcome == "busy" and (pause := patience.pause()):
            sleep(pause)
            begun = keys.begin(key, request_hash, keep=keep, run=run)
    return checked(begun, key)


async def aacquire(keys: Keys, key: Ident, request_hash: bytes | None, keep: float, wait: float | None) -> Begun:
    """As `acquire`, without holding up the event loop."""
    begun = await _abegin(keys, key, request_hash, keep)
    if begun.outcome == "busy" and wait:
        patience = Patience(wait)
        while begun.outcome == "busy" and (pause := patience.pause()):
            await asyncio.sleep(pause)
            begun = await _abegin(keys, key, request_hash, keep)
    return checked(begun, key)


async def _abegin(keys: Keys, key: Ident, request_hash: bytes | None, keep: float) -> Begun:
    begun = keys.threads.submit(keys.begin, key, request_hash, keep=keep)
    try:
        return await asyncio.wrap_future(begun)
    except asyncio.CancelledError:
        if not begun.cancelled():
            # A thread is beginning, or has begun, for a caller who is gone: what it got is given back.
            keys.threads.submit(_give_back, keys, key, begun)
        raise


def _give_back(keys: Keys, key: Ident, begun: Future[Begun]) -> None:
    if begun.exception() is None and begun.result().outcome == "fresh":
        keys.free(key, begun.result().fence)


async def settled(keys: Keys, settle: Callable[..., None], /, *args: Any) -> None:
    """Settle without holding up the event loop. A caller who is cancelled leaves; what was begun is still written."""
    written = keys.threads.submit(copy_context().run, settle, *args)
    if any(isinstance(each, GeneratorExit) for each in args):
        return  # the coroutine is being thrown away: it may wait for nothing any more
    await asyncio.shield(asyncio.wrap_future(written))
