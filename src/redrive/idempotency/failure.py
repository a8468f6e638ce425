"""What a failure means for its key: stored for good, or the key is free again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..core.fault import Rules
from ..engine.rules import judgement
from ..errors import Blocked, BreakerOpen
from ..journal.redaction import redacted_text

Frees: TypeAlias = Callable[[BaseException], bool]
MAX_MESSAGE = 2_000


def freeing(free_on: Rules | None, /) -> Frees:
    """Which errors free the key: those worth another try, by the standard rule or by the one given.

    What nobody knows is stored: after an unknown error the work may have been done, and a second time is what a key is
    there to prevent. Cancellation, Ctrl+C and the like say nothing about the work: free.
    """
    judge = judgement(free_on, "free_on").judge

    def frees(error: BaseException) -> bool:
        if not isinstance(error, Exception) or isinstance(error, (BreakerOpen, Blocked)):
            return True  # not called at all, or not yet
        return judge(error).retryable

    return frees


def told(error: BaseException, /) -> dict[str, Any]:
    """What is stored of an error: without secrets, of bounded length."""
    kind = type(error)
    message = redacted_text(str(error))
    return {
        "type": kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "…",
    }
