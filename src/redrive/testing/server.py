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
    """Answers from a script, one step for each request, and repeats the last step for ever.

    with FaultServer(503, "reset", 200) as server:
        fetch(server.url)                # fails twice, then gets its 200
        assert server.count == 3

    With `upstream=`, the address of a real server, it stands before that one: "pass" gives its answer, "lost" has it do the work
    and loses the answer, `Answer(passed=True, trouble="cut")` cuts its answer.

    It listens on a free port of 127.0.0.1 from `start()` (or `with`) to `close()`. Threads may share it; forked children may not.
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
        """Listen; ready when this returns."""
        if self._listener is not None:
            raise RuntimeError("this FaultServer has been started already")
        self._listen(0)
        return self

    def _listen(self, port: int) -> None:
        self._listener = Listener(port, self.next_answer, self._upstream, self._tls)
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), name="FaultServer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and drop every connection; no thread is left. Closing twice is fine."""
        if self._listener is not None and self._thread is not None and self._thread.is_alive():
            self._listener.shutdown()
            self._listener.drop()
            self._listener.server_close()
            self._thread.join()

    @contextmanager
    def down(self) -> Iterator[None]:
        """As if it had been killed: every connection is dropped, and new ones are refused until the block ends."""
        port = self.port
        self.close()
        self._earlier = self.connections
        with socket.socket() as bound:  # bound but not listening: nobody else can take the port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", port))
            yield
        self._listen(port)

    def script(self, *script: Step, path: str | None = None) -> None:
        """Answer so from now on: everything, or one path (without its query), which then has a script of its own."""
        with self._lock:
            self._scripts[path] = answers(script, self._upstream)

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._listener is None:
            raise RuntimeError("this FaultServer has not been started: use `with`")
        return self._listener.server_address[1]

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request so far, in the order in which they had been read."""
        with self._lock:
            return tuple(self._requests)

    @property
    def count(self) -> int:
        """How many requests there have been."""
        return len(self._requests)

    @property
    def connections(self) -> int:
        """How many connections there have been."""
        return self._earlier + (0 if self._listener is None else self._listener.accepted)

    @property
    def open(self) -> int:
        """How many connections there are now: those that a client forgot to close are still among them."""
        return 0 if self._listener is None else self._listener.open

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds between one request and the next."""
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
    """The address of a port on which every connection is refused, as long as the block lasts."""
    with socket.socket() as bound:  # bound but not listening: nobody else can take the port
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def unreachable() -> Iterator[str]:
    """The address of a port on which connecting takes for ever, as long as the block lasts. Linux only."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # nobody accepts these, and there is no room for more
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"
