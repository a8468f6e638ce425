"""The pages, one file for each, named by its noun: a router and a template of the same name."""

from __future__ import annotations

from . import (
    audit,
    batches,
    dead,
    events,
    failures,
    health,
    jobs,
    journal,
    keys,
    layers,
    login,
    metrics,
    overview,
    partitions,
    schedules,
    sweeps,
    workers,
)

PAGES = tuple(
    page.router
    for page in (
        health, metrics, login, overview, failures, journal, dead, sweeps, keys, jobs, events, batches, partitions, schedules,
        workers, audit, layers,
    )
)  # fmt: skip
