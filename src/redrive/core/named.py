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
        self._known: dict[str, tuple[T, Mapping[str, object]]] = {}

    def get(self, name: str, numbers: Mapping[str, object]) -> T:
        """The one of this name, made when first asked for."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a shared {self._make.__name__} must be text: {name!r}")
        fresh = self._make(**numbers)  # checks the numbers before anything is kept
        with LOCK:
            found, given = self._known.setdefault(name, (fresh, numbers))
        if numbers and numbers != given:
            raise ValueError(
                f"{self._make.__name__} {name!r} exists with {dict(given) or 'the default numbers'}; asked for {dict(numbers)}"
            )
        return found
