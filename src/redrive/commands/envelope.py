"""Envelope: how a call of a command travels through the ledger, and how its result comes back."""

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
from ..ledger.record import Lease
from ..worker.job_type import Undecodable, Unstorable
from .options import said

VERSION = 1
"""Of the envelope. Its payload is a JSON object of the arguments by name, as `app.spill` writes it too; the command's name, the
key, the correlation ids, the deadline and this number stand beside it, in columns of the job."""

_COUNT = count()


class Envelope:
    """How the calls of one function travel. Checked when the function is decorated. Immutable: anything may share it."""

    __slots__ = ("_arguments", "_key", "_place", "_result", "_takes", "name")

    def __init__(self, name: str, fn: Callable[..., Any], key: KeyOf | None, /, *, skip: int) -> None:
        """TypeError where an argument or the result cannot be stored; ValueError where the key is not of the arguments."""
        self.name = name
        self._place = getattr(fn, "__qualname__", repr(fn))
        self._arguments = Arguments(fn, skip=skip)
        signature = inspect.signature(fn)
        self._takes = str(signature.replace(parameters=list(signature.parameters.values())[skip:]))
        if key is None:
            self._key: Template | Callable[..., KeyLike] | None = None
        elif isinstance(key, str):
            self._key = Template.over(key, fn, skip=skip)
        elif callable(key):
            self._key = key
        else:
            raise TypeError(
                f"key= must be a template such as 'shop:{{user}}:{{order_id}}:receipt:v1', or a function, not {key!r}"
            )
        try:
            self._result: Codec = codec(typing.get_type_hints(fn, include_extras=True).get("return", Any))
        except TypeError as refused:
            raise TypeError(f"{self._place}: its result cannot be stored: {refused}") from None

    @property
    def keyed(self) -> bool:
        """Whether the arguments say what makes two submissions the same work."""
        return self._key is not None

    def key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> str:
        """The key of a call; one of its own where nothing makes two calls the same work."""
        made = self._key
        if made is None:
            return str(Key("command", "", _fresh(), self.name))
        try:
            return str(made.key(args, kwargs)) if isinstance(made, Template) else said(made(*args, **kwargs))
        except TypeError:
            self._arguments.bind(args, kwargs)  # names the command's function if the call itself is wrong
            raise

    def payload(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> bytes:
        """The arguments, as they are stored. TypeError names one that is not what its annotation says."""
        return to_bytes(self._arguments.dump(args, kwargs))

    def opened(self, lease: Lease, /) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with; Undecodable has the names that were stored, and what the function takes now."""
        if lease.version != VERSION:
            raise Undecodable(
                f"envelope version {lease.version} cannot be read; this code of {self.name} reads version {VERSION}"
            )
        try:
            stored = from_bytes(lease.payload)
            if not isinstance(stored, dict):
                raise TypeError("a JSON object of arguments was expected")
            return self._arguments.load(stored)
        except (TypeError, ValueError, KeyError, RecursionError) as wrong:
            raise Undecodable(
                f"stored arguments don't fit {self.name}: {wrong}",
                f"Stored: {outline(lease.payload)}; {self._place} takes {self._takes}",
            ) from None

    def stored(self, result: Any, /) -> bytes | None:
        """The result, as it is stored; Unstorable where it is not what its annotation says."""
        if result is None:
            return None
        if hasattr(type(result), "__await__"):
            if hasattr(result, "close"):
                result.close()  # or Python warns that it was never awaited, far from here
            raise Unstorable(f"{self.name} is a sync function and returned an awaitable; register the `async def` itself")
        try:
            return to_bytes(self._result.dump(result))
        except (TypeError, ValueError, RecursionError) as refused:
            raise Unstorable(f"{self.name} has run, but its result cannot be stored: {misfit(refused)}") from None

    def loaded(self, result: bytes | None, /) -> Any:
        """The result again, as the annotated type."""
        return None if result is None else self._result.load(from_bytes(result))


def _fresh() -> str:
    """Nobody else's, and in the order in which they are made: a batch is stored in the order of its keys."""
    return f"{time_ns():016x}{next(_COUNT) & 0xFFFF:04x}{token_hex(6)}"
