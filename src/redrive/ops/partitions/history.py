"""History of a partition: its attempts, and why it is not running now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ...partitions.key import Partition
from ...partitions.model import Explanation, Marker, PartitionRun, PartitionView, SourceView
from ...partitions.queries import PartitionQueries
from ...partitions.store.rows import POLICY
from ..audit import AuditOperations, Decision
from ..context import OperatorContext
from ..project.target import Operated, ledger_of
from .datasets import terms_of
from .raw_data import RawState, raw_states

__all__ = ["Explained", "History", "Marker", "PartitionRun", "PartitionView", "explain", "history"]

MAX_ROLLBACKS = 1000
"""Rollbacks of all partitions that are searched for those of one."""


@dataclass(frozen=True, slots=True)
class History:
    """A partition with all its attempts. Immutable."""

    facts: PartitionView
    runs: Sequence[PartitionRun]
    """Newest first."""
    markers: Sequence[Marker]
    now: datetime
    rollbacks: Sequence[Decision] = ()
    """Rollbacks among the last 1,000 of the audit log, newest first."""


@dataclass(frozen=True, slots=True)
class Explained:
    """The state of a partition, and why it is not running now. Immutable."""

    partition: Partition
    explanation: Explanation
    last: PartitionRun | None
    """The last attempt."""
    in_force: PartitionRun | None
    """The current run, which readers get."""
    assumed: bool
    """Whether the limits of the dataset are not known here, so that the defaults were used."""
    lost: str | None = None
    """Why the raw data of the current run cannot be read. None: no problem, or not checked."""
    unchecked: str | None = None
    """Why the raw data of the current run was not checked. None: it was, or there is none."""
    paused_source: SourceView | None = None
    """Its source, if that is paused."""

    @property
    def is_in_outage(self) -> bool:
        """Whether its source is paused after an outage, and resumes by itself."""
        return self.paused_source is not None and self.paused_source.actor == POLICY


def history(context: OperatorContext, partition: Partition, /) -> History | None:
    """Return the attempts at a partition. None: nothing is stored of it."""
    ledger = context.ledger
    queries = PartitionQueries(ledger)
    facts = queries.get(partition)
    if facts is None:
        return None
    entries = AuditOperations(context).find(action="partition.rollback", limit=MAX_ROLLBACKS)
    return History(
        facts,
        queries.history(partition),
        queries.markers(partition),
        ledger.now(),
        [entry for entry in entries if entry.what.get("partition") == str(partition)],
    )


def explain(app: Operated, partition: Partition, /) -> Explained:
    """Explain the state of a partition, also of one that was never requested."""
    queries = PartitionQueries(ledger_of(app))
    dataset = (partition.source, partition.query_name)
    terms = next((each for each in terms_of(app) if each.dataset == dataset), None)
    explanation = queries.explain(partition, terms)
    facts = explanation.facts
    runs = [] if facts is None else queries.history(partition)
    current_id = None if facts is None else facts.current_run_id
    raw_state = RawState() if facts is None else raw_states(app, [facts])[0]
    reasons = explanation.why
    if raw_state.problem is not None and reasons and reasons[0].startswith("accepted"):
        first = "accepted, but its raw data cannot be read, and no new extraction is requested"
        explanation = replace(explanation, why=(first, *reasons[1:]))
    return Explained(
        partition=partition,
        explanation=explanation,
        last=runs[0] if runs else None,
        in_force=next((run for run in runs if run.run_id == current_id), None),
        assumed=terms is None,
        lost=raw_state.problem,
        unchecked=raw_state.unchecked,
        paused_source=next(
            (each for each in queries.sources() if each.paused and each.source == partition.source),
            None,
        ),
    )
