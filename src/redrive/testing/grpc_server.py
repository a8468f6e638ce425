"""GrpcFaultServer: a gRPC server for tests that fails by a script and records its calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, TypeAlias

import grpc

PUSHBACK = "grpc-retry-pushback-ms"
MAX_CALLS = 64
"""Maximum number of calls at the same time."""
MAX_DELAY_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class GrpcAnswer:
    """A scripted response of a `GrpcFaultServer`: a message or a status code. Immutable.

    Args:
        code: Name of the status code.
        message: Bytes of the message.
        details: Text of the status.
        delay: Seconds before anything is sent. Infinite: no response.
        pushback: Seconds after which the server wants the next call, or the text of that header.
    """

    code: str = "OK"
    message: bytes = b""
    details: str = "as the script says"
    delay: float = 0.0
    pushback: float | str | None = None


@dataclass(frozen=True, slots=True)
class GrpcCall:
    """A call that a `GrpcFaultServer` received, including retries of the channel. Immutable.

    Attributes:
        method: The method.
        message: Bytes of the request.
        metadata: Metadata by lower-case name.
        remaining: Seconds until the client's deadline. None: no deadline.
        at: When it was read, on the monotonic clock.
    """

    method: str
    message: bytes
    metadata: Mapping[str, str | bytes]
    remaining: float | None
    at: float


GrpcStep: TypeAlias = str | GrpcAnswer | Callable[[GrpcCall], "GrpcAnswer | str"]
"""The name of a status code, an answer, or a function of the call that returns one of these."""


class GrpcFaultServer:
    """A gRPC server that follows a script for unary calls. The last step repeats.

        with GrpcFaultServer("UNAVAILABLE", "UNAVAILABLE", "OK") as server:
            channel = grpc.insecure_channel(server.target)

    Messages are bytes. It listens on a free port of 127.0.0.1 from `start()` (or `with`) to
    `close()`. `stop()` and `start()` keep the port. Threads may share it. Forked children may not.

    Args:
        script: Steps: the name of a status code, a `GrpcAnswer`, or a function of the `GrpcCall`.
    """

    def __init__(self, *script: GrpcStep) -> None:
        self._script = [*script] or [GrpcAnswer()]
        self._calls: list[GrpcCall] = []
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._closing = threading.Event()
        self.port = 0
        """Port of the server."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start to listen.

        Returns:
            The server.
        """
        if self._server is not None:
            raise RuntimeError("this GrpcFaultServer has been started already")
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="GrpcFaultServer")
        # Without so_reuseport, the start fails if another program has the port.
        self._server = grpc.server(
            self._pool, handlers=[_Methods(self)], options=[("grpc.so_reuseport", 0)]
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()
        return self

    def close(self) -> None:
        """Stop the server and drop every running call. You may close it twice."""
        if self._server is None or self._pool is None:
            return
        server, self._server = self._server, None
        self._closing.set()
        server.stop(None).wait()
        self._pool.shutdown()

    stop = close
    """The same as `close`, for a server that is started again."""

    def script(self, *script: GrpcStep) -> None:
        """Set a new script.

        Args:
            script: Steps as of `GrpcFaultServer(...)`.
        """
        with self._lock:
            self._script = [*script] or [GrpcAnswer()]

    @property
    def target(self) -> str:
        """Target for a channel."""
        return f"127.0.0.1:{self.port}"

    @property
    def calls(self) -> tuple[GrpcCall, ...]:
        """All calls so far, in the order in which they were read."""
        with self._lock:
            return tuple(self._calls)

    @property
    def count(self) -> int:
        """Number of calls."""
        return len(self._calls)

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds between calls."""
        return tuple(later.at - earlier.at for earlier, later in pairwise(self.calls))

    def next_answer(self, call: GrpcCall, /) -> GrpcAnswer:
        """Record a call and return the next step of the script."""
        with self._lock:
            self._calls.append(call)
            step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        answer = step(call) if callable(step) else step
        return GrpcAnswer(answer) if isinstance(answer, str) else answer

    def handle(self, method: str, message: bytes, context: Any, /) -> bytes:
        """Answer a call, in a thread of the server."""
        metadata = dict(context.invocation_metadata())
        answer = self.next_answer(
            GrpcCall(method, message, metadata, context.time_remaining(), time.monotonic())
        )
        if answer.delay:
            self._closing.wait(min(answer.delay, MAX_DELAY_SECONDS))
        if answer.pushback is not None:
            pushback = answer.pushback
            if not isinstance(pushback, str):
                pushback = str(round(pushback * 1000))
            context.set_trailing_metadata(((PUSHBACK, pushback),))
        if answer.code != "OK":
            context.abort(grpc.StatusCode[answer.code], answer.details)
        return answer.message


class _Methods(grpc.GenericRpcHandler):
    """Handles every unary method, with bytes as messages."""

    def __init__(self, owner: GrpcFaultServer) -> None:
        self._owner = owner

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method

        def handle(message: bytes, context: Any) -> bytes:
            return self._owner.handle(method, message, context)

        return grpc.unary_unary_rpc_method_handler(handle)
