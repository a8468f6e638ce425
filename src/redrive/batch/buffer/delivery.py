"""Delivery: how one batch is sent, tried again, and left behind when nothing helps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from ...engine.codes import CLAIMED, Claim
from ...engine.owner import codes_of
from ...engine.retry import Retry
from ...errors import BufferClosed
from .answer import Said, Told, each, told
from .spill import Submits, spent, spilled

Item = TypeVar("Item")
Fate: TypeAlias = Literal["accepted", "spilled"]
There: TypeAlias = Callable[[], Sequence[int]]
"""The places in a batch of those whose senders still wait, by now."""


class Delivered(NamedTuple):
    """What became of a batch."""

    errors: Told | None
    """For each item; None: no error at all."""
    fate: Fate = "accepted"
    """What became of those without an error."""


class Delivery(Generic[Item]):
    """How batches are sent. Immutable: the flushes of one buffer share it."""

    __slots__ = ("_codes", "_send", "retry", "spill")

    def __init__(self, retry: Retry, send: Callable[[list[Item]], Awaitable[Said]], spill: Submits[Any] | None) -> None:
        self.retry = retry
        self.spill = spill
        self._send = send
        rule = codes_of(retry)
        self._codes = frozenset(rule.codes if rule else ())

    async def deliver(self, items: list[Item], there: There) -> Delivered:
        """Send a batch; what cannot be sent is left behind, if there is a place for it."""
        claim = Claim(self._codes)
        CLAIMED.set(claim)  # in a context of this flush's own
        said = await self._sent(items)
        claim.over = True
        if not isinstance(said, Exception):
            return Delivered(said)
        errors = each(said, len(items))
        try:
            if self.spill is None or not spent(said, self.retry.settings):
                return Delivered([*errors])
            return await self.leave(items, errors, there)
        finally:
            del said, errors, there  # the error knows the frame below, which (from 3.12 on) knows this one

    async def _sent(self, items: list[Item]) -> Told | Exception | None:
        # The error knows this frame: neither other errors nor those who wait for them may be in it, or there is a cycle.
        try:
            return told(await self._send(items), len(items))
        except Exception as error:
            return error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this task, but something that `send` waited for, was cancelled: a call whose channel was closed, say.
            return BufferClosed("what sent this item was cancelled from inside: it may have been sent", sent=True)

    async def leave(self, items: Sequence[Item], errors: Sequence[Exception], there: There) -> Delivered:
        """Leave items behind, but for those whose senders have gone and want nothing any more."""
        if self.spill is None:
            return Delivered([*errors])
        places = there()
        left: Told = [*errors]
        said = await spilled(
            self.spill, [items[place] for place in places], [errors[place] for place in places], self.retry.operation
        )
        for place, error in zip(places, said, strict=True):
            left[place] = error
        return Delivered(left, "spilled")
