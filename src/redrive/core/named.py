"""Named objects: one of a kind for each name in a process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from .lock import LOCK

T = TypeVar("T")


class Named(Generic[T]):
    """A register of shared objects by name. Asked again with other numbers, it refuses rather than ignore them."""

    def __init__(self, make: type[T]) -> None:
        self._make = make
        self._known: dict[str, T] = {}

    def get(self, name: str, numbers: Mapping[str, object]) -> T:
        """The one of this name, made when first asked for."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a shared {self._make.__name__} must be text: {name!r}")
        fresh = self._make(**numbers)  # checks the numbers before anything is kept
        with LOCK:
            found = self._known.setdefault(name, fresh)
        # Read back from both, so that a number left out equals its default, and 30 equals timedelta(seconds=30).
        there = {number: getattr(found, number) for number in numbers}
        asked = {number: getattr(fresh, number) for number in numbers}
        if there != asked:
            raise ValueError(
                f"{self._make.__name__} {name!r} already exists with {_listed(there)}, not {_listed(asked)}; "
                "use another name, or the same options"
            )
        return found


def _listed(numbers: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={number!r}" for name, number in numbers.items())
