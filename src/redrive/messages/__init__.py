"""Messages: events, their sources and their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily
from .event import Event

if TYPE_CHECKING:
    from .inbox import Source
    from .redis.stream import RedisStream

__all__ = ["Event", "RedisStream", "Source"]


if not TYPE_CHECKING:  # a type checker that saw this would accept every misspelt name
    # Loaded at first use: an Event needs no database.
    __getattr__ = lazily(__name__, {"RedisStream": "redis.stream", "Source": "inbox"})
