"""Carried: the correlation ids of a job, around the work that is done for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..core.context import IDS
from .record import Lease


@contextmanager
def carried(lease: Lease, /) -> Iterator[None]:
    """Inside, records of the journal and jobs that are submitted carry the ids of whoever submitted this one.

    Those and no others: what is around a worker is not about the work. In async code too: `with carried(lease): await ...`.
    """
    token = IDS.set(lease.ids)
    try:
        yield
    finally:
        try:
            IDS.reset(token)
        except ValueError:
            pass  # left by another context than the one it was entered in, which has nothing of ours to undo
