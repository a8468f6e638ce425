"""FaultServer: an HTTP server for tests that misbehaves as told, and counts what it was asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from .answer import Answer, Request, Step, Trouble, answers
from .listener import Listener

if TYPE_CHECKING:
    import ssl

__all__ = ["Answer", "FaultServer", "Request", "Step", "Trouble", "refused", "unreachable"]


class FaultServer:
    """An HTTP server that follows a script: one step for each request. The last step repeats.

        with FaultServer(503, "reset", 200) as server:
            fetch(server.url)  # fails twice, then gets its 200
            assert server.count == 3

    It listens on a free port of 127.0.0.1 from `start()` (or `with`) to `close()`. Threads may
    share it. Forked children may not.

    Args:
        script: Steps: a status, a fault such as `"reset"`, or an `Answer`. With an upstream also
            `"pass"` and `"lost"`.
        tls: Serve HTTPS with this context.
        upstream: Address of a real server behind this one. `"pass"` returns its response. `"lost"`
            lets it do the work and loses the response. `Answer(passed=True, trouble="cut")` cuts
            it.
    """

    def __init__(self, *script: Step, tls: ssl.SSLContext | None = None, upstream: str | None = None) -> None:
        self._upstream = upstream
        self._scripts: dict[str | None, list[Answer]] = {None: answers(script, upstream)}
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self._tls = tls
        self._earlier = 0
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start to listen.

        Returns:
            The server.
        """
        if self._listener is not None:
            raise RuntimeError("this FaultServer has been started already")
        self._listen(0)
        return self

    def _listen(self, port: int) -> None:
        self._listener = Listener(port, self.next_answer, self._upstream, self._tls)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), name="FaultServer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server and drop every connection. You may close twice."""
        if self._listener is not None and self._thread is not None and self._thread.is_alive():
            self._listener.shutdown()
            self._listener.drop()
            self._listener.server_close()
            self._thread.join()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections inside a block, as if the server had been killed.

        Yields:
            Nothing.
        """
        port = self.port
        self.close()
        self._earlier = self.connections
        with socket.socket() as bound:  # bound but not listening: nobody else can take the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", port))
            yield
        self._listen(port)

    def script(self, *script: Step, path: str | None = None) -> None:
        """Set a new script.

        Args:
            script: Steps as of `FaultServer(...)`.
            path: Only for this path, without its query.
        """
        with self._lock:
            self._scripts[path] = answers(script, self._upstream)

    @property
    def port(self) -> int:
        """Port of the server."""
        if self._listener is None:
            raise RuntimeError("this FaultServer has not been started: use `with`")
        return self._listener.server_address[1]

    @property
    def url(self) -> str:
        """Address of the server, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """All requests so far, in the order in which they were read."""
        with self._lock:
            return tuple(self._requests)

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self._requests)

    @property
    def connections(self) -> int:
        """Number of connections so far."""
        return self._earlier + (0 if self._listener is None else self._listener.accepted)

    @property
    def open(self) -> int:
        """Number of open connections, including those that a client forgot to close."""
        return 0 if self._listener is None else self._listener.open

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds between requests."""
        times = [request.at for request in self.requests]
        return tuple(later - earlier for earlier, later in pairwise(times))

    def next_answer(self, request: Request, /) -> Answer:
        """Keep the request and take the next step of its script."""
        with self._lock:
            self._requests.append(request)
            steps = self._scripts.get(request.path.partition("?")[0]) or self._scripts[None]
            return steps.pop(0) if len(steps) > 1 else steps[0]


@contextmanager
def refused() -> Iterator[str]:
    """Return the address of a port that refuses connections inside the block.

    Yields:
        The address.
    """
    with socket.socket() as bound:  # bound but not listening: nobody else can take the port
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def unreachable() -> Iterator[str]:
    """Return the address of a port on which connecting never ends inside the block. Linux only.

    Yields:
        The address.
    """
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # nobody accepts these, and there is no room for more
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"
