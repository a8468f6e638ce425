"""Stored values: from a Python value to JSON and back, by its annotation. What cannot be stored is refused at decoration.

JSON types, dataclasses, enums, dates, Decimal, UUID, bytes, lists, tuples, sets, dicts, unions, TypedDict and NamedTuple;
pydantic, attrs and msgspec classes where they are used. Codecs are immutable: anything may share one.
"""

from __future__ import annotations

from .codec import codec
from .misfit import Misfit, misfit, raised_by
from .protocol import Codec
from .text import from_bytes, outline, to_bytes

__all__ = ["Codec", "Misfit", "codec", "from_bytes", "misfit", "outline", "raised_by", "to_bytes"]
