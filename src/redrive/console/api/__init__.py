"""The REST API, over the same operations as the pages.

`/api/openapi.json` describes it.
"""

from __future__ import annotations

from . import audit, controls, dead_letters, job_changes, monitoring, partitions, work

ROUTERS = (
    monitoring.router,
    work.search_router,
    job_changes.router,
    work.jobs_router,
    dead_letters.router,
    dead_letters.sweeps_router,
    controls.router,
    work.events_router,
    work.keys_router,
    work.batches_router,
    partitions.router,
    partitions.backfills,
    audit.router,
    audit.erase_router,
)
