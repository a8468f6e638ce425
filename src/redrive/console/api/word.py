"""Word: what the parameters and the refusals of the API are made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Depends, Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from ..view import View, view


def _printable(text: str) -> str:
    if "\0" in text:
        raise ValueError("text has no NUL in it")
    return text


Here: TypeAlias = Annotated[View, Depends(view)]
Number: TypeAlias = Annotated[int, Path(ge=1, le=2**63 - 1, description="Its number.")]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Text: TypeAlias = Annotated[
    str | None, Query(max_length=500), AfterValidator(lambda text: None if text is None else _printable(text))
]
Said: TypeAlias = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_printable)]
Since: TypeAlias = Annotated[AwareDatetime | None, Query(description="Only since then.")]
Letters: TypeAlias = Literal["pending", "replaying", "replayed", "discarded", "all"]
States: TypeAlias = Literal["queued", "retry_wait", "replaying", "running", "blocked", "dlq", "done", "discarded"]


class Body(BaseModel):
    """What is sent: nothing that is not known."""

    model_config = ConfigDict(extra="forbid")


class Because(Body):
    """Why, for the audit."""

    because: Said


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    title: str
    status: int
    detail: str | None = None


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """What else an operation may answer."""
    of = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    said = {404: "There is no such thing", 409: "Refused: it does not stand so", 422: "That cannot be"}
    always = (401, 403, 413, 503)
    return {code: {"description": said.get(code, "Not now, or not you"), "content": of} for code in (*always, *codes)}
