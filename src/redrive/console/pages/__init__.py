"""The pages, one module for each noun, over the same operations as the REST API."""

from __future__ import annotations

from . import (
    audit,
    batches,
    dead_letters,
    erase,
    events,
    jobs,
    keys,
    login,
    monitoring,
    partitions,
    sweeps,
    system,
)

ROUTERS = tuple(
    module.router
    for module in (
        system,
        login,
        monitoring,
        dead_letters,
        sweeps,
        keys,
        jobs,
        events,
        batches,
        partitions,
        audit,
        erase,
    )
)
