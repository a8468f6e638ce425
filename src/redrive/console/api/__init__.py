"""The REST API, one module for each noun, over the same operations as the pages.

`/api/openapi.json` describes it.
"""

from __future__ import annotations

from . import (
    audit,
    batches,
    dead_letters,
    erase,
    events,
    jobs,
    keys,
    monitoring,
    partitions,
    sweeps,
)

ROUTERS = (
    monitoring.router,
    jobs.router,
    dead_letters.router,
    sweeps.router,
    events.router,
    keys.router,
    batches.router,
    partitions.router,
    partitions.backfills,
    audit.router,
    erase.router,
)
