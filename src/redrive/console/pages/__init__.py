"""The pages, over the same operations as the REST API."""

from __future__ import annotations

from . import audit, dead_letters, login, monitoring, partitions, sweeps, system, work

ROUTERS = tuple(
    module.router
    for module in (
        system,
        login,
        monitoring,
        dead_letters,
        sweeps,
        work,
        partitions,
        audit,
    )
)
