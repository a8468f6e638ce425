"""Status: a worker at one moment, for a person who watches it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple


class Status(NamedTuple):
    """A worker at one moment. Immutable."""

    name: str
    state: str
    """starting, working, alone (one job that was running when a worker died, with nothing beside it), draining, ended."""
    since: datetime
    running: int
    done: int
    again: int
    """Attempts that failed, or asked to come back."""
    dead: int
    """Dead letters, blocked ones included."""
    late: int
    """Ends of attempts that came too late, and changed nothing."""
    overdue: int
    """Plain functions that run longer than their attempt may take: nobody can stop them, and they keep their lease."""
    parked: Mapping[str, str]
    """Kinds that are not handed out for now, and why."""
    trouble: str | None
    """What the ledger said last, where it cannot be reached."""
    partitions: Mapping[str, int] = {}
    """Of datasets: how many extractions are running, were accepted, rejected, terminal, given back, late; {}: it has none."""
    failing: Mapping[str, str] = {}
    """What it does beside the jobs and could not do the last time, reading a stream for example, and why."""
