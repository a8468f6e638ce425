"""What every codec can do."""

from __future__ import annotations

from typing import Any, Protocol


class Codec(Protocol):
    """How values of one annotation are stored."""

    def dump(self, value: Any, /) -> Any:
        """What JSON can hold; TypeError says what was expected."""

    def load(self, data: Any, /) -> Any:
        """The value again, of the annotated type."""
