"""Scene: one thing to see, and the figures that were measured while it was shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .stage import Stage

Figures: TypeAlias = Mapping[str, float]
"""What was measured, by name; requests are the server's own count."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing to see."""

    name: str
    title: str
    play: Callable[[Stage], Figures]
    told: Callable[[Figures], str]
    """The figures in one line, for the summary."""
    read: str
    """Where to read on."""
