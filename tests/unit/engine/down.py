"""A service that is down."""

from __future__ import annotations

from collections.abc import Callable

from redrive import RetryPolicy

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)


def down(error: Callable[[], Exception] = lambda: OSError("down")) -> Callable[[], None]:
    def work() -> None:
        raise error()

    return work


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")
