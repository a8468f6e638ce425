"""Carried: what redrive did about a client's error, told of ours too, so that `outcome` has it of the one that is raised."""

from __future__ import annotations

from typing import TypeVar

from ..engine.nesting import mark, outcome

E = TypeVar("E", bound=Exception)


def carried(ours: E, error: Exception, /) -> E:
    """Our error, with the outcome of the client's."""
    ended = outcome(error)
    if ended is not None:
        mark(ours, ended, None)
    return ours
