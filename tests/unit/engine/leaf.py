"""The innermost call of a stack, and layers of every type around it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive import RetryPolicy, retry

ZERO = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
TIMED = retry(ZERO, on=OSError)
UNTIMED = retry(ZERO, on=OSError, attempt_timeout=None)
LAYERS = {"timed": TIMED, "untimed": UNTIMED, "whole": retry(ZERO, on=OSError, key=lambda *_: "a:b:c:d:v1")}
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


class Leaf:
    """Fails, and counts its calls."""

    def __init__(self, error: Callable[[], Exception] = lambda: OSError("down")) -> None:
        self.calls = 0
        self._error = error

    def __call__(self) -> None:
        self.calls += 1
        raise self._error()

    async def later(self) -> None:
        self()
