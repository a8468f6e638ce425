"""The connection to a Temporal server: one client on an event loop of its own, for each process."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from ..core.event_loop_thread import EventLoopThread
from ..errors import EngineError, EngineUnavailable
from .engine import Temporal

T = TypeVar("T")
NOTHING_CHANGED = "nothing was changed"
MAX_PROBLEM_CHARS = 120

CONNECT_SECONDS = 5.0
CALL_SECONDS = 10.0
RPC_TIMEOUT = timedelta(seconds=CALL_SECONDS)
"""Of one request. The client repeats a request inside of this time."""
AWAY = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED,
)
"""Statuses of a server that cannot be reached, or is busy."""


class TemporalConnection:
    """A client of a Temporal server, connected at first use. Threads and event loops may share it.

    The client runs on an event loop in a thread of its own, because a client belongs to one loop.
    A forked child connects again, with threads of its own.
    """

    def __init__(self, engine: Temporal, /) -> None:
        self.engine = engine
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop = EventLoopThread("redrive-temporal")
        self._client: Client | None = None
        self._runtime: Runtime | None = None
        """Of this process: the threads of the SDK's default one may be a parent's."""

    def call(self, work: Callable[[Client], Awaitable[T]], act: str, /) -> T:
        """Run a coroutine with the client and return its result. Blocks.

        Args:
            work: Gets the client.
            act: What it does, for messages, such as `nothing was submitted`.

        Raises:
            EngineUnavailable: The server cannot be reached.
            EngineError: The server refused the request.
        """
        loop = self._own_loop()
        return loop.run(lambda: self._run(work, act), timeout=None)

    async def acall(self, work: Callable[[Client], Awaitable[T]], act: str, /) -> T:
        """Run a coroutine with the client, from any event loop. See `call`."""
        loop = self._own_loop()
        return await asyncio.wrap_future(loop.submit(lambda: self._run(work, act)))

    @property
    def loop(self) -> EventLoopThread:
        """The event loop of the client."""
        return self._own_loop()

    async def client(self, act: str = NOTHING_CHANGED, /) -> Client:
        """Return the client. Call it on `loop` only.

        Args:
            act: What was not done if the server cannot be reached, for messages.

        Raises:
            EngineUnavailable: The server cannot be reached.
            EngineError: The namespace is missing, or access is denied.
        """
        if self._client is None:
            self._client = await self.connect(act)
        return self._client

    def close(self) -> None:
        """Disconnect. The connection is opened again at the next use."""
        self._client = None
        if self._pid == os.getpid():
            self._loop.close(cancel_seconds=CONNECT_SECONDS)

    def _own_loop(self) -> EventLoopThread:
        if self._pid != os.getpid():  # the loop's thread stayed in the parent
            self._pid, self._lock = os.getpid(), threading.Lock()
            self._loop, self._client = EventLoopThread("redrive-temporal"), None
            self._runtime = None
        return self._loop

    async def _run(self, work: Callable[[Client], Awaitable[T]], act: str) -> T:
        client = await self.client(act)
        try:
            return await work(client)
        except RPCError as error:
            raise self.explain(error, act) from error

    async def connect(self, act: str = NOTHING_CHANGED, /) -> Client:
        """Return a new client. Each worker needs its own. Call it on `loop` only."""
        engine = self.engine
        if self._runtime is None:
            self._runtime = Runtime(telemetry=TelemetryConfig())
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                client = await Client.connect(
                    engine.address,
                    namespace=engine.namespace,
                    api_key=engine.api_key,
                    tls=engine.tls,
                    runtime=self._runtime,
                )
        except TimeoutError as error:
            raise self._unavailable(f"no response within {CONNECT_SECONDS:g} s", act) from error
        except RuntimeError as error:  # the SDK's error of a server that cannot be reached
            raise self._unavailable(_short(error), act) from error
        except RPCError as error:
            raise self.explain(error, act) from error
        return client

    def explain(self, error: RPCError, act: str, /) -> EngineError:
        """Return the error of a request as one line that says what to do."""
        engine = self.engine
        if error.status in AWAY:
            return self._unavailable(error.message, act)
        if error.status == RPCStatusCode.NOT_FOUND and "amespace" in error.message:
            return EngineError(
                f"Temporal at {engine.address}: no namespace {engine.namespace!r}; {act}; create "
                f"it: temporal operator namespace create -n {engine.namespace}"
            )
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
            return EngineError(
                f"Temporal at {engine.address}: access to the namespace {engine.namespace!r} is "
                f"denied ({error.message}); {act}; check api_key= and tls="
            )
        return EngineError(
            f"Temporal at {engine.address}: {error.status.name}: {error.message}; {act}"
        )

    def _unavailable(self, problem: str, act: str) -> EngineUnavailable:
        return EngineUnavailable(
            f"Temporal at {self.engine.address} cannot be reached ({problem}); {act}; start the "
            "server, or correct the address in engine=Temporal(...)"
        )


def _short(error: BaseException) -> str:
    """Return the message of the innermost cause: the SDK shows the debug form of all causes."""
    text = " ".join(str(error).split())
    messages = re.findall(r'message: "([^"]+)"', text)
    return messages[-1].lower() if messages else text[:MAX_PROBLEM_CHARS]
