"""Capture: what an ASGI application sends, on its way to the client.

A response whose length is known is held back until it is stored: who has the answer finds it again, whatever dies next. One
that is streamed goes through piece by piece, and only its end is held back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from .response import Response

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class Capture:
    """The `send` of one request."""

    def __init__(self, send: Send, finished: Callable[[Response], Awaitable[None]], limit: int) -> None:
        self._send = send
        self._finished = finished
        self._limit = limit
        self._start: Message | None = None
        self._held: list[Message] = []
        self._holds = False
        self._pieces: list[bytes] | None = []
        self._length = 0
        self._over = False

    async def __call__(self, message: Message, /) -> None:
        kind = message["type"]
        if kind == "http.response.start" and self._start is None:
            self._start = message
            self._holds = True
            self._held.append(message)
        elif kind == "http.response.body" and self._start is not None and not self._over:
            await self._piece(message)
        elif kind in ("http.response.pathsend", "http.response.zerocopysend") and self._start is not None and not self._over:
            self._pieces = None  # the server reads it from a file by itself
            await self._end(message)
        else:
            await self._send(message)

    async def _piece(self, message: Message) -> None:
        piece = bytes(message.get("body", b""))
        self._length += len(piece)
        if self._pieces is not None:
            self._pieces.append(piece)
            if self._length > self._limit:
                self._pieces = None
        if not message.get("more_body", False):
            await self._end(message)
        elif self._holds and self._pieces is not None and self._announced():
            self._held.append(message)
        else:
            await self._release()
            await self._send(message)

    def _announced(self) -> bool:
        """Whether the whole of it will fit, by its own word."""
        assert self._start is not None
        for name, value in self._start.get("headers", ()):
            if name.lower() == b"content-length":
                return value.isdigit() and int(value) <= self._limit
        return False

    async def _end(self, message: Message) -> None:
        assert self._start is not None
        self._over = True
        body = None if self._pieces is None else b"".join(self._pieces)
        await self._finished(Response(self._start["status"], list(self._start.get("headers", ())), body))
        await self._release()
        await self._send(message)

    async def _release(self) -> None:
        self._holds = False
        held, self._held = self._held, []
        for message in held:
            await self._send(message)
