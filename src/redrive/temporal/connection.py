"""The connection to a Temporal server: one client on an event loop of its own, for each process."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic, sleep
from typing import TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig
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
CORRECT_ADDRESS = "start the server, or correct the address in engine=Temporal(...)"
CONNECT_PROBLEMS = {
    "InvalidContentType": ("it does not use TLS", "remove tls= from engine=Temporal(...)"),
    "UnknownIssuer": ("unknown certificate authority", "pass TLSConfig(server_root_ca_cert=...)"),
    "NotValidForName": ("its certificate has another name", "use that, or TLSConfig(domain=...)"),
    "CertificateRequired": ("it needs a client certificate", "pass TLSConfig(client_cert=...)"),
    "dns error": ("the name of the host is unknown", "correct it in engine=Temporal(...)"),
    "get_system_info": ("it closed the connection", "check tls= and the address"),
}
"""Problem and fix by a word in the error of the SDK, which shows the debug form of all causes."""
EXIT_SECONDS = 1.0


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
            atexit.unregister(wait_for_foreign_threads)
            atexit.register(wait_for_foreign_threads)
            # Its warnings repeat the errors that Redrive reports.
            self._runtime = Runtime(telemetry=TelemetryConfig(logging=LoggingConfig("ERROR")))
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
            problem = f"no response within {CONNECT_SECONDS:g} s"
            raise self._unavailable(problem, CORRECT_ADDRESS, act) from error
        except RuntimeError as error:  # the SDK's error of a server that cannot be reached
            raise self._unavailable(*_explain_connect(error), act) from error
        except RPCError as error:
            raise self.explain(error, act) from error
        return client

    def explain(self, error: RPCError, act: str, /) -> EngineError:
        """Return the error of a request as one line that says what to do."""
        engine = self.engine
        if error.status in AWAY:
            return self._unavailable(error.message, CORRECT_ADDRESS, act)
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

    async def check_namespace(self, client: Client, /) -> None:
        """Raise EngineError if the namespace is missing: the SDK's worker has its own error."""
        request = DescribeNamespaceRequest(namespace=self.engine.namespace)
        try:
            await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)
        except RPCError as error:
            raise self.explain(error, NOTHING_CHANGED) from error

    def _unavailable(self, problem: str, fix: str, act: str) -> EngineUnavailable:
        return EngineUnavailable(
            f"Temporal at {self.engine.address} cannot be reached ({problem}); {act}; {fix}"
        )


def _explain_connect(error: BaseException) -> tuple[str, str]:
    """Return the problem and the fix of a connection that failed."""
    text = " ".join(str(error).split())
    for word, explained in CONNECT_PROBLEMS.items():
        if word in text:
            return explained
    messages = re.findall(r'message: "([^"]+)"', text)
    problem = messages[-1].lower() if messages else text[:MAX_PROBLEM_CHARS]
    return problem, CORRECT_ADDRESS


def wait_for_foreign_threads(seconds: float = EXIT_SECONDS, /) -> bool:
    """Wait until no thread of the SDK runs Python code. Return False if that took too long.

    A thread of the SDK that delivers a result while the interpreter ends crashes the process.
    """
    until = monotonic() + seconds
    while True:
        own = {each.ident for each in threading.enumerate()}
        if own.issuperset(sys._current_frames()):
            return True
        if monotonic() >= until:
            return False
        sleep(0.001)
