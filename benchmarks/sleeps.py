"""Sleeping taken out, so that the machinery of a retry is compared and not the kernel's `sleep(0)`."""

import asyncio
import time

asyncio_sleep = asyncio.sleep
"""The real one, for whoever must let other tasks run."""


def _no_sleep(seconds: float, /) -> None:
    pass


async def _no_async_sleep(delay: float, result: object = None) -> object:
    return result


def remove() -> None:
    """For the whole process; before the libraries are imported, because some take the function by name."""
    time.sleep = _no_sleep  # type: ignore[assignment]
    asyncio.sleep = _no_async_sleep  # type: ignore[assignment]
