"""SharedByName: one object for each name in a process, such as a named budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from .lock import LOCK

T = TypeVar("T")


class SharedByName(Generic[T]):
    """Creates objects by name and returns the same one for the same name.

    Asking for an existing name with other options raises ValueError.
    """

    def __init__(self, make: type[T]) -> None:
        self._make = make
        self._objects: dict[str, T] = {}

    def get(self, name: str, options: Mapping[str, object]) -> T:
        """Return the object of this name, and create it at first use."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"the name of a shared {self._make.__name__} must be text: {name!r}")
        candidate = self._make(**options)  # checks the options before anything is stored
        with LOCK:
            shared = self._objects.setdefault(name, candidate)
        # Read from both objects, so that 30 equals timedelta(seconds=30).
        existing = {option: getattr(shared, option) for option in options}
        requested = {option: getattr(candidate, option) for option in options}
        if existing != requested:
            raise ValueError(
                f"{self._make.__name__} {name!r} already exists with {_format(existing)}, "
                f"not {_format(requested)}; use another name, or the same options"
            )
        return shared


def _format(options: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
