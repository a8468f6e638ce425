"""KNOWN: all families in one table."""

from __future__ import annotations

from . import (
    api,
    asynchttp,
    aws,
    azure,
    elastic,
    google,
    grpc,
    httpx,
    llm,
    mongo,
    mysql,
    ours,
    redis,
    retrying,
    schema,
    sql,
    ssh,
    standard,
    urllib3,
)
from .look import Entry

FAMILIES = (
    *(standard, ours, schema, retrying, httpx, urllib3, asynchttp, llm, grpc, google, aws, azure, redis, sql, ssh),
    *(api, elastic, mongo, mysql),
)

KNOWN: dict[str, Entry] = {name: entry for family in FAMILIES for name, entry in family.KNOWN.items()}
"""By package and class. A Fault is what every error of that class means; a function has to look at the error."""
