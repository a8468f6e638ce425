"""Relay: a TCP port before a server, which counts connections and lets some of them go wrong."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Literal, Self, TypeAlias

Step: TypeAlias = Literal["pass", "reset", "silent"] | int
"""pass: to the server and back. reset: RST at once. silent: accepted, and never a word. A number: RST after so many bytes."""
RESET = struct.pack("ii", 1, 0)


class Relay:
    """Plays a script, one step for each connection; the last one for ever. Threads may share it."""

    def __init__(self, port: int, *script: Step) -> None:
        self._target = port
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
        """How many connections there were."""
        return len(self.times)

    def counted(self, many: int) -> int:
        """The same, once there were so many: a client that gave up may be gone before a busy machine has seen it come."""
        end = time.monotonic() + 60
        while self.count < many and time.monotonic() < end:
            time.sleep(0.01)
        return self.count

    @property
    def waits(self) -> list[float]:
        """Seconds between one connection and the next."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]

    def drop(self) -> None:
        """Tear down whatever is open."""
        for each in self._open:
            _reset(each)
        self._open.clear()

    def hold(self) -> None:
        """Let nothing through, until it goes on."""
        self._flowing.clear()

    def go_on(self) -> None:
        """Let everything through again."""
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
                there = socket.create_connection(("127.0.0.1", self._target))
                self._open.append(there)
                for one, other in ((came, there), (there, came)):
                    threading.Thread(target=_pump, args=(one, other, step, self._flowing), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket, step: Step, flowing: threading.Event) -> None:
    left = step if isinstance(step, int) else None
    try:
        while data := one.recv(65536):
            flowing.wait(60)
            if left is not None:
                left -= len(data)
                if left < 0:
                    break
            other.sendall(data)
    except OSError:
        pass
    if left is not None and left < 0:
        _reset(one)
        _reset(other)
        return
    try:
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _reset(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.shutdown(socket.SHUT_RD)  # wakes who reads from it here
    except OSError:
        pass
    connection.close()
