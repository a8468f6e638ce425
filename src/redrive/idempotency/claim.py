"""claim: a block that runs once for its key, by `with` or `async with`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..core.codec import codec, from_bytes, to_bytes
from ..core.context import Entered
from ..core.fault import Rules
from ..core.key import Key, KeyLike
from ..core.seconds import Seconds, lasting, seconds
from .failure import freeing
from .fingerprint import fingerprint
from .hold import Hold, aacquire, acquire, scope_of, settled
from .record import Ident

if TYPE_CHECKING:
    from ..ledger.statement import Runner
    from .keys import Keys
    from .record import Begun

_JSON = codec(Any)


class Claim:
    """An idempotency key that this block holds, or its stored response. Belongs to the block.

    `key` is the idempotency key. `fresh` is True if the work is not done yet. If it is False,
    `response` has the stored response.
    """

    __slots__ = ("_response", "freed", "fresh", "key")

    def __init__(self, key: Key, begun: Begun) -> None:
        self.key = key
        self.fresh = begun.outcome == "fresh"
        """True: nobody has done this yet; do it. False: it is done, and `response` is its answer."""
        self.freed = False
        self._response = None if begun.response is None else from_bytes(begun.response)

    @property
    def response(self) -> Any:
        """The response, as JSON can hold it. Set it if `fresh` is True. It is stored when the block ends."""
        return self._response

    @response.setter
    def response(self, value: Any) -> None:
        if not self.fresh:
            raise RuntimeError(f"the key {self.key} already has its result; check claim.fresh first")
        self._response = _JSON.dump(value)

    def free(self) -> None:
        """Release the key at the end of the block, so that the next caller runs the work."""
        self.freed = True

    def __repr__(self) -> str:
        return f"<Claim {self.key} {'fresh' if self.fresh else 'done'}>"


class Claiming:
    """What `app.claim(...)` gives: enter it once, by `with` or `async with`."""

    __slots__ = ("_claim", "_entered", "_frees", "_hash", "_hold", "_keep", "_key", "_keys", "_run", "_tx", "_wait")

    def __init__(
        self, keys: Callable[[], Keys], key: KeyLike, /, *, request: object, tx: Any, wait: Seconds | None, keep: Seconds,
        free_on: Rules | None,
    ) -> None:  # fmt: skip
        self._keys = keys
        self._key = Ident.of(key)
        self._hash = fingerprint(request)
        self._tx = tx
        self._wait = None if wait is None else seconds("wait", wait)
        self._keep = lasting("keep", keep)
        self._frees = freeing(free_on)
        self._claim: Claim | None = None
        self._hold: Hold | None = None
        self._run: Runner | None = None
        self._entered: Entered | None = None

    def __enter__(self) -> Claim:
        self._once()
        keys = self._keys()
        wait = self._wait
        if self._tx is not None:
            self._run = keys.joined(self._tx)
            if keys.on_sqlite:
                wait = None  # inside a transaction of ours the other holder could never finish
        return self._has(keys, acquire(keys, self._key, self._hash, self._keep, wait, self._run))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self._left()
        if self._hold is not None:
            self._settle(error)

    async def __aenter__(self) -> Claim:
        self._once()
        keys = self._keys()
        if self._tx is None:
            begun = await aacquire(keys, self._key, self._hash, self._keep, self._wait)
        elif hasattr(self._tx, "run_sync"):
            begun = await self._tx.run_sync(self._acquired, keys)
        else:
            raise TypeError(f"tx must be an AsyncConnection or an AsyncSession in `async with`, not {type(self._tx).__name__}")
        return self._has(keys, begun)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._left()
        if self._hold is None:
            return
        if self._tx is not None:
            await self._tx.run_sync(lambda _: self._settle(error))
        else:
            await settled(self._keys(), self._settle, error)

    def _once(self) -> None:
        if self._claim is not None:
            raise RuntimeError(f"this claim of {self._key} is already in use; create a new one")

    def _acquired(self, connection: Any, keys: Keys) -> Begun:
        self._run = keys.joined(connection)
        return acquire(keys, self._key, self._hash, self._keep, None, self._run)

    def _has(self, keys: Keys, begun: Begun) -> Claim:
        self._claim = Claim(Key.parse(self._key.key), begun)
        if begun.outcome == "fresh":
            self._hold = Hold(keys, self._key, begun, self._keep, self._frees, self._run)
        self._entered = Entered(scope_of(self._key))
        return self._claim

    def _left(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.leave()

    def _settle(self, error: BaseException | None) -> None:
        hold, claim = self._hold, self._claim
        assert hold is not None
        assert claim is not None
        if error is not None:
            hold.failed(error)
        elif claim.freed:
            hold.free()
        else:
            hold.answer(claim.response, to_bytes)
