"""Codecs convert Python values to JSON and back, by their annotations.

They support JSON types, dataclasses, enums, dates, Decimal, UUID, bytes, lists, tuples, sets,
dicts, unions, TypedDict and NamedTuple. They also support pydantic, attrs and msgspec classes.
Annotations that are not supported are rejected when a function is decorated. Codecs are immutable,
so threads may share one.
"""

from __future__ import annotations

from .codec import codec, from_bytes, outline, to_bytes
from .misfit import Misfit, misfit, raised_by
from .values import Codec

__all__ = ["Codec", "Misfit", "codec", "from_bytes", "misfit", "outline", "raised_by", "to_bytes"]
