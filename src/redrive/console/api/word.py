"""Word: the shared parameter and error types of the API."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from ..view import View, view


def _printable(text: str) -> str:
    if "\0" in text:
        raise ValueError("invalid text: it contains a NUL character")
    return text


Here: TypeAlias = Annotated[View, Depends(view)]
Number: TypeAlias = Annotated[int, Path(ge=1, le=2**63 - 1, description="Its id.")]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=1000, description="Maximum number.")]
Text: TypeAlias = Annotated[
    str | None, Query(max_length=500), AfterValidator(lambda text: None if text is None else _printable(text))
]
Said: TypeAlias = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_printable)]
Since: TypeAlias = Annotated[AwareDatetime | None, Query(description="Only newer than this timestamp.")]
Letters: TypeAlias = Literal["pending", "replaying", "replayed", "discarded", "all"]
States: TypeAlias = Literal["queued", "retry_wait", "replaying", "running", "blocked", "dlq", "done", "discarded"]


class Body(BaseModel):
    """A request body without unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Because(Body):
    """The reason, which is recorded in the audit log."""

    because: Said


class Problem(BaseModel):
    """An error (RFC 9457)."""

    title: str
    status: int
    detail: str | None = None


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an operation."""
    of = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    said = {404: "Not found", 409: "Conflict with the current state", 422: "Invalid request"}
    always = (401, 403, 413, 503)
    return {code: {"description": said.get(code, "Not allowed, or not available"), "content": of} for code in (*always, *codes)}
