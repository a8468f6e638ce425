"""Disable `sleep`, so that only the overhead of retries is compared."""

import asyncio
import time

asyncio_sleep = asyncio.sleep
"""The original function, to yield to other tasks."""


def _no_sleep(seconds: float, /) -> None:
    pass


async def _no_async_sleep(delay: float, result: object = None) -> object:
    return result


def disable() -> None:
    """Disable `sleep` in this process. Call it before the libraries are imported, because some import it by name."""
    time.sleep = _no_sleep  # type: ignore[assignment]
    asyncio.sleep = _no_async_sleep  # type: ignore[assignment]
