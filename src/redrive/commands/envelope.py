"""Envelope: encodes the arguments and the result of a command for the ledger."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from itertools import count
from secrets import token_hex
from time import time_ns
from typing import Any

from ..core.codec import Codec, codec, from_bytes, outline, to_bytes
from ..core.codec.codec import Arguments
from ..core.codec.misfit import misfit
from ..core.key import Key, KeyLike, KeyOf, Template
from ..ledger.model import Lease
from ..worker.job_type import Undecodable, Unstorable
from .options import key_text

ENVELOPE_VERSION = 1
"""Version of the stored form: a JSON object of the arguments by name. `app.spill` also writes it.

The name of the command, the key, the correlation ids, the deadline and this number are columns of
the job.
"""

_COUNT = count()


class Envelope:
    """Encodes the calls of one function. Immutable: anything may share it.

    Args:
        name: Name of the command.
        fn: The function.
        key: Template of the job key, or a function of the arguments.
        skip: Number of leading parameters that are not stored.

    Raises:
        TypeError: An argument or the result has a type that cannot be stored.
        ValueError: The key names something that is not a parameter.
    """

    __slots__ = ("_arguments", "_key", "_place", "_result", "_signature", "name")

    def __init__(
        self, name: str, fn: Callable[..., Any], key: KeyOf | None, /, *, skip: int
    ) -> None:
        self.name = name
        self._place = getattr(fn, "__qualname__", repr(fn))
        self._arguments = Arguments(fn, skip=skip)
        signature = inspect.signature(fn)
        self._signature = str(
            signature.replace(parameters=list(signature.parameters.values())[skip:])
        )
        if key is None:
            self._key: Template | Callable[..., KeyLike] | None = None
        elif isinstance(key, str):
            self._key = Template.over(key, fn, skip=skip)
        elif callable(key):
            self._key = key
        else:
            raise TypeError(
                "key= must be a template such as 'shop:{user}:{order_id}:receipt:v1', "
                f"or a function, not {key!r}"
            )
        try:
            hints = typing.get_type_hints(fn, include_extras=True)
            self._result: Codec = codec(hints.get("return", Any))
        except TypeError as error:
            raise TypeError(f"{self._place}: its result cannot be stored: {error}") from None

    @property
    def has_key(self) -> bool:
        """Whether the key is made from the arguments, so that equal submissions are one job."""
        return self._key is not None

    def key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> str:
        """Return the key of a call, or a unique one if the command has no key."""
        key = self._key
        if key is None:
            return str(Key("command", "", _unique_id(), self.name))
        try:
            if isinstance(key, Template):
                return str(key.key(args, kwargs))
            return key_text(key(*args, **kwargs))
        except TypeError:
            self._arguments.bind(args, kwargs)  # Raises a better message if the call is wrong.
            raise

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> bytes:
        """Return the stored form of the arguments.

        Raises:
            TypeError: An argument does not have its annotated type.
        """
        return to_bytes(self._arguments.dump(args, kwargs))

    def decode_arguments(self, lease: Lease, /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a job.

        Raises:
            Undecodable: They do not fit the function. The message has the stored names and the
                signature.
        """
        if lease.version != ENVELOPE_VERSION:
            raise Undecodable(
                f"envelope version {lease.version} cannot be read; "
                f"this code of {self.name} reads version {ENVELOPE_VERSION}"
            )
        try:
            stored = from_bytes(lease.payload)
            if not isinstance(stored, dict):
                raise TypeError("a JSON object of arguments was expected")
            return self._arguments.load(stored)
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise Undecodable(
                f"stored arguments don't fit {self.name}: {error}",
                f"Stored: {outline(lease.payload)}; {self._place} takes {self._signature}",
            ) from None

    def encode_result(self, result: Any, /) -> bytes | None:
        """Return the stored form of a result.

        Raises:
            Unstorable: It does not have the annotated type.
        """
        if result is None:
            return None
        if hasattr(type(result), "__await__"):
            if hasattr(result, "close"):
                result.close()  # Otherwise Python warns later that it was never awaited.
            raise Unstorable(
                f"{self.name} is a sync function and returned an awaitable; "
                "register the `async def` itself"
            )
        try:
            return to_bytes(self._result.dump(result))
        except (TypeError, ValueError, RecursionError) as error:
            raise Unstorable(
                f"{self.name} has run, but its result cannot be stored: {misfit(error)}"
            ) from None

    def decode_result(self, result: bytes | None, /) -> Any:
        """Return a stored result as the annotated type."""
        return None if result is None else self._result.load(from_bytes(result))


def _unique_id() -> str:
    """Return a unique id. Ids sort by time, because a batch is stored in the order of its keys."""
    return f"{time_ns():016x}{next(_COUNT) & 0xFFFF:04x}{token_hex(6)}"
