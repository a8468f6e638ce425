"""Both clients behind one interface, so that one test shows what both do."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from redrive import RetryPolicy, http, retry

Colour: TypeAlias = Literal["plain", "async"]
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.001, jitter=0)

SERVERS = ("FaultServer", "process_request")
"""What the threads of fault servers are called."""


class Both:
    """A client of the given colour; what it gives is awaited here where it has to be."""

    def __init__(self, colour: Colour, client: Any, runner: asyncio.Runner) -> None:
        self.colour = colour
        self.client = client
        self._runner = runner

    def get(self, *args: Any, **options: Any) -> Any:
        return self.result(self.client.get(*args, **options))

    def post(self, *args: Any, **options: Any) -> Any:
        return self.result(self.client.post(*args, **options))

    def request(self, *args: Any, **options: Any) -> Any:
        return self.result(self.client.request(*args, **options))

    def wait_until_ready(self, *args: Any, **options: Any) -> Any:
        return self.result(self.client.wait_until_ready(*args, **options))

    def using(self, **options: Any) -> Both:
        return Both(self.colour, self.client.using(**options), self._runner)

    def close(self) -> None:
        self.result(self.client.close() if self.colour == "plain" else self.client.aclose())

    def result(self, given: Any) -> Any:
        if not isinstance(given, Coroutine):
            return given
        return self._runner.run(given, context=contextvars.copy_context())  # with the deadlines and clocks of the test


@contextmanager
def client(colour: Colour, base_url: str, *, alone: bool = True, **options: Any) -> Iterator[Both]:
    """A client that waits for milliseconds only, unless told otherwise, and leaves no thread. alone: nobody else starts any."""
    threads = set(threading.enumerate())
    with asyncio.Runner() as runner:
        options.setdefault("retry", retry(QUICK, attempt_timeout=5))
        made = (http.Client if colour == "plain" else http.AsyncClient)(base_url, **options)
        both = Both(colour, made, runner)
        try:
            yield both
        finally:
            both.close()
    left = [thread for thread in set(threading.enumerate()) - threads if not any(name in thread.name for name in SERVERS)]
    assert not left or not alone, left
