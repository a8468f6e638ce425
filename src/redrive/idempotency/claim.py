"""`app.claim`: a block of code that runs once for its key, by `with` or `async with`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..core.codec import codec, from_bytes, to_bytes
from ..core.context import ActiveScope
from ..core.fault import Rules
from ..core.key import Key, KeyLike
from ..core.lazy import deferred
from ..core.seconds import Seconds, dated_duration, seconds
from .fingerprint import fingerprint
from .lease import (
    KeyLease,
    acquire,
    acquire_async,
    rule_for_freeing,
    scope_with_key,
    settle_in_thread,
)
from .record import KeyId

if TYPE_CHECKING:
    from ..ledger.db import caller_transaction
    from ..ledger.db.compiled import Runner
    from .keys import Keys
    from .record import BeginResult
else:  # it needs SQLAlchemy
    (caller_transaction,) = deferred("redrive.ledger.db", "caller_transaction")

_JSON = codec(Any)


class Claim:
    """An idempotency key that this block holds, or its stored response. Belongs to the block.

    `key` is the idempotency key. `fresh` is True if the work is not done yet. If it is False,
    `response` has the stored response.
    """

    __slots__ = ("_response", "freed", "fresh", "key")

    def __init__(self, key: Key, result: BeginResult) -> None:
        self.key = key
        self.fresh = result.outcome == "fresh"
        self.freed = False
        self._response = None if result.response is None else from_bytes(result.response)

    @property
    def response(self) -> Any:
        """The response, as JSON can hold it.

        Set it if `fresh` is True. It is stored when the block ends.
        """
        return self._response

    @response.setter
    def response(self, value: Any) -> None:
        if not self.fresh:
            raise RuntimeError(
                f"the key {self.key} already has its result; check claim.fresh first"
            )
        self._response = _JSON.dump(value)

    def free(self) -> None:
        """Release the key at the end of the block, so that the next caller runs the work."""
        self.freed = True

    def __repr__(self) -> str:
        return f"<Claim {self.key} {'fresh' if self.fresh else 'done'}>"


class ClaimContext:
    """The context manager of `app.claim(...)`. Enter it once, by `with` or `async with`."""

    __slots__ = (
        "_claim",
        "_entered",
        "_frees_key",
        "_keep",
        "_key",
        "_keys",
        "_lease",
        "_request_hash",
        "_run",
        "_tx",
        "_wait",
    )

    def __init__(
        self,
        keys: Callable[[], Keys],
        key: KeyLike,
        /,
        *,
        request: object,
        tx: Any,
        wait: Seconds | None,
        keep: Seconds,
        free_on: Rules | None,
    ) -> None:
        self._keys = keys
        self._key = KeyId.of(key)
        self._request_hash = fingerprint(request)
        self._tx = tx
        self._wait = None if wait is None else seconds("wait", wait)
        self._keep = dated_duration("keep", keep)
        self._frees_key = rule_for_freeing(free_on)
        self._claim: Claim | None = None
        self._lease: KeyLease | None = None
        self._run: Runner | None = None
        self._entered: ActiveScope | None = None

    def __enter__(self) -> Claim:
        self._check_unused()
        keys = self._keys()
        wait = self._wait
        if self._tx is not None:
            self._run = keys.ledger.connections.adopt_transaction(self._tx)
            if keys.has_single_writer:
                wait = None  # the other holder cannot settle while our transaction is open
        result = acquire(keys, self._key, self._request_hash, self._keep, wait, self._run)
        return self._start(keys, result)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self._leave_scope()
        if self._lease is not None:
            self._settle(error)

    async def __aenter__(self) -> Claim:
        self._check_unused()
        keys = self._keys()
        if self._tx is None:
            result = await acquire_async(
                keys, self._key, self._request_hash, self._keep, self._wait
            )
        else:
            acquire_in = partial(self._acquire_in_transaction, keys)
            result = await caller_transaction.run_in_caller(self._tx, acquire_in)
        return self._start(keys, result)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self._leave_scope()
        if self._lease is None:
            return
        if self._tx is not None:
            await caller_transaction.run_in_caller(self._tx, lambda _: self._settle(error))
        else:
            await settle_in_thread(self._keys(), self._settle, error)

    def _check_unused(self) -> None:
        if self._claim is not None:
            raise RuntimeError(f"this claim of {self._key} is already in use; create a new one")

    def _acquire_in_transaction(self, keys: Keys, sync_tx: Any) -> BeginResult:
        self._run = keys.ledger.connections.adopt_transaction(sync_tx)
        return acquire(keys, self._key, self._request_hash, self._keep, None, self._run)

    def _start(self, keys: Keys, result: BeginResult) -> Claim:
        self._claim = Claim(Key.parse(self._key.key), result)
        if result.outcome == "fresh":
            self._lease = KeyLease(keys, self._key, result, self._keep, self._frees_key, self._run)
        self._entered = ActiveScope(scope_with_key(self._key))
        return self._claim

    def _leave_scope(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.leave()

    def _settle(self, error: BaseException | None) -> None:
        lease, claim = self._lease, self._claim
        assert lease is not None
        assert claim is not None
        if error is not None:
            lease.fail(error)
        elif claim.freed:
            lease.free()
        else:
            lease.complete(claim.response, to_bytes)
