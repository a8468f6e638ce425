"""Answer: what `send` said of a batch, as what each item's sender is told. Pure."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeAlias

from ...errors import Refused

Answer: TypeAlias = bool | Exception | None
"""Of one item: accepted (True or None), refused (False), or the error that its sender is to get."""
Said: TypeAlias = "Answer | Sequence[Answer]"
"""Of a batch: one answer for all of it, or one for each item, in their order."""
Told: TypeAlias = "list[Exception | None]"
"""What each sender gets: an error, or nothing."""


def told(said: object, count: int) -> Told | None:
    """What the senders of a batch are told; None: all of it was accepted. TypeError where it is no answer at all."""
    if said is None or said is True:
        return None
    if said is False:
        return [_refused(count) for _ in range(count)]
    if not isinstance(said, Sequence) or isinstance(said, (str, bytes)):
        raise TypeError(
            f"send says True or None (accepted), False (refused), or one answer for each item; not {type(said).__name__} {said!r}"
        )
    if len(said) != count:
        raise TypeError(f"send gave {len(said)} answers for {count} items; one for each, in their order, or one for all")
    return [_one(answer) for answer in said]


def each(error: Exception, count: int) -> list[Exception]:
    """The error once for each sender: its traceback and its notes are its own. One that cannot be copied is shared."""
    found = [error]
    for _ in range(count - 1):
        try:
            twin = copy.copy(error)
        except Exception:  # it wants other arguments than it keeps
            return [error] * count
        if type(twin) is not type(error):
            return [error] * count
        twin.__dict__.update(error.__dict__)  # some say of themselves that they are only their arguments
        if "__notes__" in twin.__dict__:
            twin.__dict__["__notes__"] = list(twin.__dict__["__notes__"])
        twin.__cause__, twin.__context__ = error.__cause__, error.__context__
        twin.__suppress_context__, twin.__traceback__ = error.__suppress_context__, error.__traceback__
        found.append(twin)
    return found


def _one(answer: object) -> Exception | None:
    if answer is None or answer is True:
        return None
    if answer is False:
        return Refused("the receiver refused this item")
    if isinstance(answer, Exception):
        return answer
    raise TypeError(f"the answer for one item is True or None, False, or an exception; not {type(answer).__name__} {answer!r}")


def _refused(count: int) -> Refused:
    return Refused("the receiver refused this item" if count == 1 else f"the receiver refused the batch of {count} items")
