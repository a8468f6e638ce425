"""A function that fails twice, sync and async."""

from __future__ import annotations

from typing import Any

from redrive import RetryPolicy

STEADY = RetryPolicy(max_attempts=3, backoff_base=1, jitter=0)


class Flaky:
    """Fails this number of times, then returns its arguments."""

    def __init__(self, failures: int = 2, error: type[Exception] = ConnectionError) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error

    def _go(self) -> None:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error(f"failure {self.calls}")

    def plain(self, /, *args: Any, **kwargs: Any) -> Any:
        self._go()
        return args, kwargs

    async def later(self, /, *args: Any, **kwargs: Any) -> Any:
        self._go()
        return args, kwargs
