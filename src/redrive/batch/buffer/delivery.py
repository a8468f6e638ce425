"""Delivery: sends one batch, reads the response for each item, and spills items that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from ...analysis.grpc import CLAIMED_CODES, CodeClaim
from ...engine.nesting import add_note, outcome
from ...engine.retry import Retry
from ...errors import BufferClosed, Refused
from ...journal.bus import emit, is_wanted
from ...journal.sinks.logging import INFO
from ..background import claimed_codes, copies_of, qualified_name
from ..spill import require_new_or_pending

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)
ItemResponse: TypeAlias = bool | Exception | None
"""The response for one item: accepted (True or None), rejected (False), or its error."""
SendResponse: TypeAlias = "ItemResponse | Sequence[ItemResponse]"
"""The response for a batch: one for all items, or one for each item, in their order."""
ItemErrors: TypeAlias = "list[Exception | None]"
"""The error of each item, or None."""
Send: TypeAlias = Callable[[list[Item]], Awaitable[SendResponse]]
WaitingPlaces: TypeAlias = Callable[[], Sequence[int]]
"""Returns the places in a batch whose callers still wait."""


class SpillTarget(Protocol[Item_contra]):
    """Takes over items that could not be sent: a command of an `App`, or anything with `submit`.

    `asubmit` is used if it exists.
    """

    def submit(self, item: Item_contra, /) -> Any:
        """Store an item durably."""


class DeliveryResult(NamedTuple):
    """The result of a batch."""

    errors: ItemErrors | None
    """The error of each item. None: no item has one."""
    status: Literal["accepted", "spilled"] = "accepted"
    """The status of the items without an error."""


class Delivery(Generic[Item]):
    """How a buffer sends batches. Immutable: all flushes of the buffer share it."""

    __slots__ = ("_codes", "_send", "retry", "spill")

    def __init__(self, retry: Retry, send: Send[Item], spill: SpillTarget[Any] | None) -> None:
        self.retry = retry
        self.spill = spill
        self._send = send
        self._codes = claimed_codes(retry)

    async def deliver(self, items: list[Item], waiting_places: WaitingPlaces) -> DeliveryResult:
        """Send a batch with retries. Spill it if the retries are used up."""
        claim = CodeClaim(self._codes)
        CLAIMED_CODES.set(claim)  # each flush has a context of its own
        response = await self._send_batch(items)
        claim.has_ended = True
        if not isinstance(response, Exception):
            return DeliveryResult(response)
        errors = copies_of(response, len(items))
        try:
            if self.spill is None or not _is_exhausted(response, self.retry):
                return DeliveryResult([*errors])
            return await self.spill_items(items, errors, waiting_places)
        finally:
            # Breaks a reference cycle: the error refers to the frame of `_send_batch`, which from
            # Python 3.12 on refers to this frame.
            del response, errors, waiting_places

    async def _send_batch(self, items: list[Item]) -> ItemErrors | Exception | None:
        # The error refers to this frame. No local variable here may refer to other errors or to
        # futures, or there is a reference cycle.
        try:
            return errors_of_response(await self._send(items), len(items))
        except Exception as error:
            return error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that `send` awaited was cancelled, not this task: a closed channel, say.
            return BufferClosed(
                "what sent this item was cancelled from inside: it may have been sent", sent=True
            )

    async def spill_items(
        self, items: Sequence[Item], errors: Sequence[Exception], waiting_places: WaitingPlaces
    ) -> DeliveryResult:
        """Spill items, except those whose callers were cancelled."""
        if self.spill is None:
            return DeliveryResult([*errors])
        places = waiting_places()
        remaining: ItemErrors = [*errors]
        spill_errors = await _submit_all(
            self.spill,
            [items[place] for place in places],
            [errors[place] for place in places],
            self.retry.operation,
        )
        for place, error in zip(places, spill_errors, strict=True):
            remaining[place] = error
        return DeliveryResult(remaining, "spilled")


def with_retries(retry: Retry, send: Send[Item]) -> tuple[Retry, Send[Item]]:
    """Return the retry, named after `send`, and `send` wrapped in it."""
    if not callable(send):
        raise TypeError(f"a SendBuffer takes an async function of a list of items, not {send!r}")

    async def attempt(items: list[Item]) -> SendResponse:
        # A new list for each attempt, because `send` may empty it.
        awaitable: Any = send(list(items))
        if not hasattr(type(awaitable), "__await__"):
            raise TypeError(
                f"the send of a SendBuffer is async; {qualified_name(send)} is plain: "
                "`async def`, or asyncio.to_thread inside one"
            )
        response: SendResponse = await awaitable
        return response

    named = retry if retry.operation else retry.using(operation=qualified_name(send))
    return named, named(attempt)


def errors_of_response(response: object, count: int) -> ItemErrors | None:
    """Return the error of each of `count` items. None: all items were accepted.

    Raises:
        TypeError: The result of `send` is not a valid response.
    """
    if response is None or response is True:
        return None
    if response is False:
        item_message = "the receiver refused this item"
        batch_message = f"the receiver refused the batch of {count} items"
        return [Refused(item_message if count == 1 else batch_message) for _ in range(count)]
    if not isinstance(response, Sequence) or isinstance(response, (str, bytes)):
        raise TypeError(
            "send says True or None (accepted), False (refused), or one answer for each item; "
            f"not {type(response).__name__} {response!r}"
        )
    if len(response) != count:
        raise TypeError(
            f"send gave {len(response)} answers for {count} items; one for each, in their order, "
            "or one for all"
        )
    return [_error_of_item(answer) for answer in response]


def _error_of_item(response: object) -> Exception | None:
    if response is None or response is True:
        return None
    if response is False:
        return Refused("the receiver refused this item")
    if isinstance(response, Exception):
        return response
    raise TypeError(
        "the answer for one item is True or None, False, or an exception; not "
        f"{type(response).__name__} {response!r}"
    )


def check_spill_target(spill: object) -> None:
    """Raise TypeError if an object has no `submit`."""
    if spill is not None and not callable(getattr(spill, "submit", None)):
        raise TypeError(
            f"spill= takes a command (@app.command), or anything with submit(item), not {spill!r}"
        )


def _is_exhausted(error: Exception, retry: Retry) -> bool:
    """Return whether retries were used up, here or in an inner layer, or are switched off."""
    ended = outcome(error)
    if ended is None:  # retries are switched off
        return retry.settings.classify(error).retryable
    return ended.spent or ended.reason == "nested"


async def _submit_all(
    spill: SpillTarget[Any],
    items: Sequence[Any],
    errors: Sequence[Exception],
    operation: str | None,
) -> ItemErrors:
    """Submit items to the spill target.

    Returns:
        For each item None, or its error with a note why it could not be submitted.
    """
    submissions = [_submit(spill, item) for item in items]
    results = await asyncio.gather(*submissions, return_exceptions=True)
    remaining: ItemErrors = []
    problems: list[BaseException] = []
    for result, error in zip(results, errors, strict=True):
        if isinstance(result, BaseException):
            problems.append(result)
            note = f"redrive: could not be enqueued as a job: {type(result).__name__}: {result}"
            add_note(error, note)
            remaining.append(error)
        else:
            remaining.append(None)
    if problems:
        fields = {"error": str(problems[0]), "error_class": type(problems[0]).__name__}
        emit("spill_failed", {"operation": operation, "items": len(problems), **fields})
    if len(problems) < len(items) and is_wanted(INFO):
        emit("spilled", {"operation": operation, "items": len(items) - len(problems)})
    return remaining


async def _submit(spill: SpillTarget[Any], item: Any) -> None:
    """Submit one item.

    Raises:
        JobEnded: The job key of the item belongs to a job that has ended.
    """
    asubmit = getattr(spill, "asubmit", None)
    if asubmit is None:
        job = await asyncio.to_thread(spill.submit, item)
    else:
        job = await asubmit(item)
    if not getattr(job, "created", True):
        await asyncio.to_thread(require_new_or_pending, job)
