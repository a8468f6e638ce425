"""Names in filters that the ledger does not have, with similar ones that it has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import get_args

from ..core.job_reasons import DeadReason
from ..ops.dead_letters.model import DeadLetterFilter
from ..ops.operator import Operator

MAX_COMPARED = 1000
"""Known names that are compared with an unknown one."""
MAX_SUGGESTED = 3


def unknown_kind(ops: Operator, kind: str | None, /, *, or_dataset: bool = False) -> str | None:
    """Say that a job type is unknown. None: it is known, or no filter.

    Args:
        ops: The operator.
        kind: The job type.
        or_dataset: Whether the filter also takes the name of a dataset, such as crm/orders.
    """
    if kind is None:
        return None
    known = list(ops.jobs.counts())
    noun = "job type"
    if or_dataset:
        from ..ops.partitions.datasets import label  # noqa: PLC0415  # few commands load it

        known += [label(*dataset) for dataset in ops.partitions.datasets()]
        noun = "job type or dataset"
    return unknown_name(noun, kind, known)


def unknown_reason(ops: Operator, reason: str | None, /) -> str | None:
    """Say that no dead letter has a reason. None: it is known, or no filter."""
    if reason is None:
        return None
    recent = ops.dead_letters.find(DeadLetterFilter(limit=MAX_COMPARED), status=None)
    stored = (letter.reason for letter in recent)  # A blocked job has its own text.
    return unknown_name("reason", reason, dict.fromkeys([*get_args(DeadReason), *stored]))


def unknown_source(ops: Operator, source: str | None, /) -> str | None:
    """Say that no event of a source is known. None: it is known, or no filter."""
    if source is None:
        return None
    sources = (line.name for line in ops.overview.summary(busy=False).sources)
    return unknown_name("source", source, sources)


def unknown_name(noun: str, name: str, known: Iterable[str], /) -> str | None:
    """Say that a name is unknown, with similar names. None: it is known."""
    names = list(known)
    if name in names:
        return None
    compared = islice(names, MAX_COMPARED)
    similar = get_close_matches(name, compared, n=MAX_SUGGESTED)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else "."
    return f"No {noun} {name!r} in this ledger{hint}"
