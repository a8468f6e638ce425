"""Relay: a TCP port before a server that counts connections and round trips, delays them, and injects faults."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Literal, Self, TypeAlias

Step: TypeAlias = Literal["pass", "reset", "silent"] | int
"""pass: to the server and back. reset: RST immediately. silent: accepted without a response. A number: RST after this many bytes.
"""
RESET = struct.pack("ii", 1, 0)


class Relay:
    """Follows a script with one step for each connection, and repeats the last one. Threads may share it.

    delay: seconds for a round trip, half of it each way. The bandwidth is not limited. It may be changed while connections are
    open, if it is not None.
    """

    def __init__(self, port: int, *script: Step, host: str = "127.0.0.1", delay: float | None = None) -> None:
        self._target = (host, port)
        self.delay = delay
        self.flights = 0
        """Round trips: how often a client sent data after the server did, or first."""
        self._needle: bytes | None = None
        self._left = 0
        self.lost = threading.Event()
        """Set when a requested response was lost."""
        self._script = list(script) or ["pass"]
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.times: list[float] = []
        self._open: list[socket.socket] = []
        self._closing = False
        self._flowing = threading.Event()
        self._flowing.set()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._flowing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        self._thread.join(60)

    @property
    def count(self) -> int:
        """Return the number of connections."""
        return len(self.times)

    def counted(self, many: int) -> int:
        """Wait for this number of connections. A client may give up before a busy machine has counted it."""
        end = time.monotonic() + 60
        while self.count < many and time.monotonic() < end:
            time.sleep(0.01)
        return self.count

    @property
    def waits(self) -> list[float]:
        """Return the seconds between connections."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]

    def drop(self) -> None:
        """Close all connections."""
        for each in list(self._open):
            _reset(each)
        self._open.clear()

    def lead_to(self, port: int) -> None:
        """Send new connections to the server at this port, like a virtual address that moves. Open ones stay."""
        self._target = (self._target[0], port)

    def lose_response(self, needle: bytes, nth: int = 1) -> None:
        """Deliver the nth request that contains these bytes, wait for its response, and cut the connection instead."""
        self.lost.clear()
        self._left = nth
        self._needle = needle

    def hold(self) -> None:
        """Block all data until `go_on`."""
        self._flowing.clear()

    def go_on(self) -> None:
        """Let all data through again."""
        self._flowing.set()

    def _accept(self) -> None:
        while not self._closing:
            try:
                came, _ = self._listener.accept()
            except OSError:
                return
            self.times.append(time.monotonic())
            step = self._script.pop(0) if len(self._script) > 1 else self._script[0]
            if step == "reset":
                _reset(came)
                continue
            self._open.append(came)
            if step != "silent":
                try:
                    there = socket.create_connection(self._target)
                except OSError:  # the server is down
                    _reset(came)
                    continue
                for each in (came, there):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open.append(there)
                link = _Link(self, came, there, step)
                for one, other in ((came, there), (there, came)):
                    threading.Thread(target=link.pump, args=(one, other), daemon=True).start()


class _Link:
    """One connection through the relay."""

    def __init__(self, relay: Relay, client: socket.socket, server: socket.socket, step: Step) -> None:
        self._relay, self._client, self._server = relay, client, server
        self._step = step
        self._spoke = True
        """The server was the last to speak."""
        self._loses = False
        self._lock = threading.Lock()
        self._pumps = 2

    def pump(self, one: socket.socket, other: socket.socket) -> None:
        """Copy the data of one end to the other. The last of both directions closes the sockets."""
        try:
            self._copy(one, other)
        finally:
            with self._lock:
                self._pumps -= 1
                is_last = self._pumps == 0
            for each in (self._client, self._server) if is_last else ():
                each.close()
                with suppress(ValueError):  # `drop` was faster
                    self._relay._open.remove(each)

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        left = self._step if isinstance(self._step, int) else None
        late = None if self._relay.delay is None else _Late(other, self._relay)
        try:
            while data := one.recv(65536):
                self._relay._flowing.wait(60)
                if left is not None:
                    left -= len(data)
                    if left < 0:
                        break
                if self._cut(one, data):
                    return
                (other if late is None else late).sendall(data)
        except OSError:
            pass
        if left is not None and left < 0:
            self._reset()
            return
        try:
            if late is not None:
                late.close()
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _cut(self, one: socket.socket, data: bytes) -> bool:
        """Count round trips. Return whether this response must be lost."""
        if one is self._server:
            self._spoke = True
            if self._loses:
                self._reset()
                self._relay.lost.set()
            return self._loses
        if self._spoke:
            self._spoke = False
            self._relay.flights += 1
        needle = self._relay._needle
        if needle is not None and needle in data:
            self._relay._left -= 1
            if self._relay._left == 0:
                self._relay._needle = None
                self._loses = True
        return False

    def _reset(self) -> None:
        _reset(self._client)
        _reset(self._server)


class _Late:
    """Sends data after a delay, in order and without a limit."""

    def __init__(self, to: socket.socket, relay: Relay) -> None:
        self._to, self._relay = to, relay
        self._waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def sendall(self, data: bytes) -> None:
        self._waiting.put((time.monotonic() + (self._relay.delay or 0.0) / 2, data))

    def close(self) -> None:
        self._waiting.put((0.0, b""))
        self._thread.join(60)

    def _run(self) -> None:
        while True:
            due, data = self._waiting.get()
            if not data:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._to.sendall(data)
            except OSError:
                return


def _reset(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.shutdown(socket.SHUT_RD)  # wakes the reader
    except OSError:
        pass
    connection.close()
