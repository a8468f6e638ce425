"""DeadlineExceeded: a timed out attempt, as callers of gRPC catch it.

In a module of its own, because its base class needs grpcio.
"""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from ..errors import AttemptTimeout


class DeadlineExceeded(AttemptTimeout, grpc.aio.AioRpcError):
    """`AttemptTimeout` and `grpc.aio.AioRpcError` in one: `code()` is DEADLINE_EXCEEDED."""

    def __init__(self, message: str, /) -> None:
        self.args = (message,)
        self._code = grpc.StatusCode.DEADLINE_EXCEEDED
        self._details = message
        self._initial_metadata = grpc.aio.Metadata()
        self._trailing_metadata = grpc.aio.Metadata()
        self._debug_error_string = message

    def __str__(self) -> str:
        return str(self._details)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._details!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Attributes that Redrive or the user added, for example notes. Not those set above.
        added = {
            name: value
            for name, value in self.__dict__.items()
            if not name.startswith("_") or name.startswith("__")
        }
        return type(self), self.args, added
