"""The shared parameters, bodies and errors of the REST API."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ...errors import NotAllowed
from ..queries import check_text

Words: TypeAlias = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(check_text)]
"""A text that is not empty."""
Id: TypeAlias = Annotated[int, Field(ge=1, le=2**63 - 1)]
Rate: TypeAlias = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
"""Maximum number of items in a second."""
Canary: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
Maximum: TypeAlias = Annotated[int, Field(ge=0, description="Change nothing if more items match.")]


class RequestBody(BaseModel):
    """A request body without unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Because(RequestBody):
    """The reason, which is recorded in the audit log."""

    because: Words


class Problem(BaseModel):
    """An error (RFC 9457)."""

    title: str
    status: int
    detail: str | None = None


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation."""
    content = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    descriptions = {
        404: "Not found",
        409: "Conflict with the current state",
        422: "Invalid request",
    }
    return {
        code: {
            "description": descriptions.get(code, "Not allowed, or not available"),
            "content": content,
        }
        for code in (401, 403, 413, 503, *codes)
    }


def check_maximum(
    count: int,
    maximum: int | None,
    /,
    *,
    named: Collection[Any] = (),
    noun: str = "match",
    limit: int | None = None,
) -> None:
    """Refuse an action on more items than the caller expects.

    Args:
        count: Number of items that match, including those beyond the limit.
        maximum: The expected maximum.
        named: Items that the caller has named one by one. They need no maximum.
        noun: The verb phrase of the message.
        limit: The limit of the request.

    Raises:
        ValueError: The maximum is missing.
        NotAllowed: There are more items.
    """
    if named:
        return
    if maximum is None:
        raise ValueError(
            f"max: missing; {count:,} {noun}, so set max to the number you expect; "
            "nothing was changed"
        )
    if count > maximum:
        raise NotAllowed(f"{count:,} {noun}, more than max={maximum:,}; nothing was changed")
    if limit is not None and count > limit:
        raise NotAllowed(f"{count:,} {noun}, more than limit={limit:,}; nothing was changed")
