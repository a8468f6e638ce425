"""The REST API, one file for each noun, over the same functions as the pages. Described at /api/openapi.json."""

from __future__ import annotations

from . import audit, backfills, batches, dead, erase, events, jobs, keys, layers, partitions, status, sweeps, watching

API = tuple(
    noun.router
    for noun in (status, watching, jobs, dead, sweeps, events, keys, batches, partitions, backfills, audit, layers, erase)
)  # fmt: skip
