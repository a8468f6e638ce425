"""The pages, over the same operations as the REST API."""

from __future__ import annotations

from . import (
    audit,
    controls,
    dead_letters,
    job_changes,
    login,
    monitoring,
    partitions,
    sweeps,
    system,
    work,
)

ROUTERS = tuple(
    module.router
    for module in (
        system,
        login,
        monitoring,
        dead_letters,
        sweeps,
        controls,
        job_changes,
        work,
        partitions,
        audit,
    )
)
