"""Origin: where a message came from, in headers of its jobs, so that a dead letter says so in columns of its own."""

from __future__ import annotations

import json

SOURCE = "redrive-source"
SOURCE_ID = "redrive-source-id"


def origin(headers: str | None, /) -> tuple[str | None, str | None]:
    """The source, and the id there, of a job with these stored headers."""
    if not headers or SOURCE not in headers:
        return None, None
    found = json.loads(headers)
    return found.get(SOURCE), found.get(SOURCE_ID)
