"""The pages, one file for each, named by its noun: a router and a template of the same name."""

from __future__ import annotations

from . import (
    audit,
    batches,
    dead,
    erase,
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
    partition_plan,
    partitions,
    schedules,
    sweeps,
    workers,
)

PAGES = tuple(
    page.router
    for page in (
        health, metrics, login, overview, failures, journal, dead, sweeps, keys, jobs, events, batches, partitions,
        partition_plan, schedules, workers, audit, layers, erase,
    )
)  # fmt: skip
