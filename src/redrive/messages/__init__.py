"""Messages: events, where they come from, and who handles them, each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .event import Event

if TYPE_CHECKING:
    from .redis.stream import RedisStream
    from .source import Source

__all__ = ["Event", "RedisStream", "Source"]


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass

    def __getattr__(name: str) -> Any:
        # At first use: an Event needs no database.
        if name == "RedisStream":
            from .redis.stream import RedisStream  # noqa: PLC0415

            return RedisStream
        if name == "Source":
            from .source import Source  # noqa: PLC0415

            return Source
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
