"""Overview: problems, counts by job type, sources and datasets."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ...ops.health.overview_rules import Trouble
from ..view import Here

router = APIRouter()

MOST, SHOWN = 100, 20
"""Maximum number of job types, problems first; and of datasets with problems."""


@router.get("/")
def overview(view: Here) -> Response:
    """Show the overview."""
    found = view.ops.overview.summary(busy=False)  # a page asks few questions
    summed = {
        name: sum(getattr(kind, name) for kind in found.kinds) for name in ("waiting", "running", "retry_wait", "dead", "blocked")
    }
    summed["failed"] = sum(kind.failed.hour for kind in found.kinds)
    more = any(kind.retry_more for kind in found.kinds)
    wrong = [one for one in found.datasets if one.wrong]
    return view.page(
        "overview.html", found=found, summed=summed, more=more, kinds=found.kinds[:MOST], datasets=wrong[:SHOWN],
        findings=[(one, _where(view, one)) for one in found.findings],
    )  # fmt: skip


def _where(view: Here, one: Trouble) -> str:
    """Return the URL of the page that shows the problem in detail."""
    if one.name in ("no workers", "dangling leases"):
        return view.url("/workers")
    if one.name == "source paused":
        return view.url("/partitions")
    if one.name == "items given up":
        return view.url("/batches", since="1h")
    if one.name in ("late", "unregistered"):
        return view.url("/jobs", kind=one.kind, state="queued")
    return view.url("/failures", kind=one.kind)
