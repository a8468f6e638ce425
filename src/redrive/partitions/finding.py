"""Finding: what a check found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from .raw import Raw


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. Immutable.

    Args:
        ok: True if the data is accepted.
        value: The measured value.
        limit: The limit it was compared with.
        detail: Explanation for an operator.
    """

    ok: bool
    value: Any = None
    limit: Any = None
    detail: str = ""


Check: TypeAlias = Callable[[Raw], Finding | bool]
"""Looks at what a run wrote. True or False will do; a Finding says why."""
