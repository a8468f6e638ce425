"""Both clients behind one interface, so that one test covers both."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from redrive import RetryPolicy, http, retry

Mode: TypeAlias = Literal["sync", "async"]
QUICK = RetryPolicy(max_attempts=3, backoff_base=0.001, jitter=0)

SERVERS = ("FaultServer", "process_request")
"""Name parts of the threads of fault servers."""


class Both:
    """A client in the given mode. Awaitables are awaited here."""

    def __init__(self, mode: Mode, client: Any, runner: asyncio.Runner) -> None:
        self.mode = mode
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
        return Both(self.mode, self.client.using(**options), self._runner)

    def close(self) -> None:
        self.result(self.client.close() if self.mode == "sync" else self.client.aclose())

    def result(self, given: Any) -> Any:
        if not isinstance(given, Coroutine):
            return given
        return self._runner.run(given, context=contextvars.copy_context())  # keeps deadlines and clocks


@contextmanager
def client(mode: Mode, base_url: str, *, alone: bool = True, **options: Any) -> Iterator[Both]:
    """Yield a client with waits of milliseconds, and check that it leaves no thread.

    alone: False if other code starts threads meanwhile.
    """
    threads = set(threading.enumerate())
    with asyncio.Runner() as runner:
        options.setdefault("retry", retry(QUICK, attempt_timeout=5))
        made = (http.Client if mode == "sync" else http.AsyncClient)(base_url, **options)
        both = Both(mode, made, runner)
        try:
            yield both
        finally:
            both.close()
    left = [thread for thread in set(threading.enumerate()) - threads if not any(name in thread.name for name in SERVERS)]
    assert not left or not alone, left
