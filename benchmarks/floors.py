"""Lower limits of the cost of a wrapper: handwritten loops and the ingredients of a time limit."""

import asyncio
import functools
import threading
import time
from contextvars import ContextVar
from typing import Any

from benchmarks.candidate import Form, Function, Library

_depth: ContextVar[float | None] = ContextVar("_depth", default=None)
_lock = threading.Lock()


class _Tokens:
    __slots__ = ("capacity", "left")

    def __init__(self) -> None:
        self.left = self.capacity = 10.0


_tokens = _Tokens()


def direct(fn: Function) -> Function:
    """Do not wrap the function."""
    return fn


def loop(fn: Function) -> Function:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        n = 0
        while True:
            try:
                return fn(*args, **kwargs)
            except ValueError:
                n += 1
                if n >= 3:
                    raise

    return wrapper


def loop_with_budget(fn: Function) -> Function:
    """Loop with a shared budget. A full budget needs no lock and no write."""
    bucket = _tokens

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        n = 0
        while True:
            try:
                result = fn(*args, **kwargs)
            except ValueError:
                n += 1
                if n >= 3:
                    raise
            else:
                if bucket.left < bucket.capacity:
                    bucket.left += 0.1
                return result

    return wrapper


def loop_with_lock(fn: Function) -> Function:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        n = 0
        while True:
            try:
                result = fn(*args, **kwargs)
            except ValueError:
                n += 1
                if n >= 3:
                    raise
            else:
                with _lock:
                    return result

    return wrapper


def loop_with_deadline(fn: Function) -> Function:
    """Loop that publishes its deadline to inner layers."""
    monotonic = time.monotonic

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        token = _depth.set(monotonic() + 10.0)
        n = 0
        try:
            while True:
                try:
                    return fn(*args, **kwargs)
                except ValueError:
                    n += 1
                    if n >= 3:
                        raise
        finally:
            _depth.reset(token)

    return wrapper


def async_loop(fn: Function) -> Function:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        n = 0
        while True:
            try:
                return await fn(*args, **kwargs)
            except ValueError:
                n += 1
                if n >= 3:
                    raise

    return wrapper


def call_later(fn: Function) -> Function:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        handle = asyncio.get_running_loop().call_later(5, task.cancel)
        try:
            return await fn(*args, **kwargs)
        finally:
            handle.cancel()

    return wrapper


def timeout(fn: Function) -> Function:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        async with asyncio.timeout(5):
            return await fn(*args, **kwargs)

    return wrapper


def wait_for(fn: Function) -> Function:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.wait_for(fn(*args, **kwargs), 5)

    return wrapper


def load() -> Library:
    return Library(
        "floor",
        sync=(
            Form("loop of three attempts", loop),
            Form("loop + full budget, no lock", loop_with_budget),
            Form("loop + budget with a lock", loop_with_lock),
            Form("loop + deadline in a ContextVar", loop_with_deadline, limit=True),
        ),
        async_=(
            Form("loop of three attempts", async_loop),
            Form("loop.call_later and cancel", call_later, limit=True, retries=False),
            Form("asyncio.timeout", timeout, limit=True, retries=False),
            Form("asyncio.wait_for", wait_for, limit=True, retries=False),
        ),
    )
