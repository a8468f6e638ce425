"""Spill: items that a send buffer could not deliver, handed over to somebody with more time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from ...engine.nesting import add_note, outcome
from ...engine.settings import Settings
from ...journal.bus import emit, wanted
from ...journal.log import INFO

Item_contra = TypeVar("Item_contra", contravariant=True)


class Submits(Protocol[Item_contra]):
    """What takes an item over: a command of an `App`, or anything with a `submit`. `asubmit` is used where it has one."""

    def submit(self, item: Item_contra, /) -> Any:
        """Written down when this returns."""


def checked(spill: object) -> None:
    """Refuse what takes nothing over."""
    if spill is not None and not callable(getattr(spill, "submit", None)):
        raise TypeError(f"spill= takes a command (@app.command), or anything with submit(item), not {spill!r}")


def spent(error: Exception, settings: Settings) -> bool:
    """Whether more time could help: retries were spent on it, here or in a layer inside, or there are none."""
    ended = outcome(error)
    if ended is None:  # switched off: nothing was spent
        return settings.judge(error).retryable
    return ended.spent or ended.reason == "nested"


async def spilled(
    spill: Submits[Any], items: Sequence[Any], errors: Sequence[Exception], operation: str | None
) -> list[Exception | None]:
    """Hand all of them over. For each: None, it is written down; or the error that it had, which says why it is not."""
    submit = getattr(spill, "asubmit", None)
    work = [submit(item) if submit else asyncio.to_thread(spill.submit, item) for item in items]
    done = await asyncio.gather(*work, return_exceptions=True)
    left: list[Exception | None] = []
    problems: list[BaseException] = []
    for said, error in zip(done, errors, strict=True):
        if isinstance(said, BaseException):
            problems.append(said)
            add_note(error, f"redrive: could not be enqueued as a job: {type(said).__name__}: {said}")
        left.append(error if isinstance(said, BaseException) else None)
    if problems:
        told = {"error": str(problems[0]), "error_class": type(problems[0]).__name__}
        emit("spill_failed", {"operation": operation, "items": len(problems), **told})
    if len(problems) < len(items) and wanted(INFO):
        emit("spilled", {"operation": operation, "items": len(items) - len(problems)})
    return left
