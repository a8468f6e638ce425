"""Markers of partitions and rollbacks: changes that extract nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ...core.seconds import whole_number
from ...errors import NotAllowed, StorageError
from ...partitions.control.plane import ControlPlane
from ...partitions.control.verdicts import VerdictWriter
from ...partitions.datasets.dataset import Extraction
from ...partitions.key import Partition
from ...partitions.model import MANUAL, Act, PartitionFilter, PartitionRun, PartitionView
from ...partitions.queries import PartitionQueries
from ...partitions.raw.files import load_raw
from ...partitions.store.queries import count_marked, leaves_out_marked
from ..project.target import Operated, ledger_of
from .datasets import check_selection, find_extraction, label
from .raw_data import NO_RAW_DATA, missing_raw
from .selection import acted_on

Steer: TypeAlias = Literal["mark_terminal", "clear_terminal", "pause", "unpause"]
MOST = 10_000
"""Partitions of one operation."""
PAGE = 1000
MAX_NAMED_RUNS = 5


@dataclass(frozen=True, slots=True)
class MarkerPlan:
    """A plan to mark partitions. Making it changes nothing. Immutable."""

    act: Steer
    ids: tuple[int, ...]
    first: tuple[str, ...]
    """The first ten partitions, as text."""
    datasets: tuple[str, ...] = ()
    """Their datasets, such as `crm/orders`."""
    changes: int = 0
    """Number of partitions that the operation would change."""
    kept: int = 0
    """Of `mark_terminal`: number of these that keep their accepted run, because only a newer run
    was rejected."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Of `clear_terminal`: number of partitions that are left out, by reason. Either an operator
    marked them as given up, or they have no raw data."""

    @property
    def count(self) -> int:
        """Number of partitions."""
        return len(self.ids)


def plan_markers(
    app: Operated,
    act: Steer,
    selection: PartitionFilter,
    most: int,
    /,
    *,
    include_marked: bool = False,
    without_raw: bool = False,
) -> MarkerPlan:
    """Plan to mark the selected partitions. Raise ValueError if none or too many are selected."""
    ledger = ledger_of(app)
    check_selection(app, acted_on(selection, ledger.now()))
    queries = PartitionQueries(ledger)
    partitions: list[PartitionView] = []
    while page := queries.find(selection, after=partitions[-1].id if partitions else 0, limit=PAGE):
        partitions += page
        if len(partitions) > most:
            raise ValueError(
                f"more than {most:,} match; narrow the selection, or pause the whole source"
            )
        if len(page) < PAGE:
            break
    left: dict[str, int] = {}
    if act == "clear_terminal" and leaves_out_marked(selection, include_marked=include_marked):
        partitions = [facts for facts in partitions if not _is_marked(facts)]
        with ledger.reading() as connection:
            left = count_marked(connection, selection)
    if act == "clear_terminal" and not without_raw:
        given_up = [facts.id for facts in partitions if facts.terminal is not None]
        missing = missing_raw(app, "retry", given_up)
        partitions = [facts for facts in partitions if facts.id not in missing]
        left |= {NO_RAW_DATA: len(missing)} if missing else {}
    return MarkerPlan(
        act=act,
        ids=tuple(facts.id for facts in partitions),
        first=tuple(str(facts.partition) for facts in partitions[:10]),
        datasets=tuple(sorted({_dataset_of(facts.partition) for facts in partitions})),
        changes=sum(_is_changed(act, facts) for facts in partitions),
        kept=sum(_keeps_run(facts) for facts in partitions) if act == "mark_terminal" else 0,
        left=left,
    )


def apply_markers(
    control: ControlPlane, plan: MarkerPlan, /, *, actor: str, because: str, grant: int | None
) -> Act:
    """Carry out a plan, in one transaction with its audit entry."""
    if plan.act == "clear_terminal":
        attempts = None if grant is None else whole_number("grant", grant)
        return control.clear_terminal(plan.ids, grant=attempts, actor=actor, because=because)
    if grant is not None:
        raise TypeError(
            "grant= is only for clear_terminal, which gives terminal partitions new attempts"
        )
    verbs = {
        "mark_terminal": control.mark_terminal,
        "pause": control.pause,
        "unpause": control.unpause,
    }
    return verbs[plan.act](plan.ids, actor=actor, because=because)


def roll_back(
    app: Operated, partition: Partition, run_id: str | None, /, *, actor: str, because: str
) -> PartitionView:
    """Make an earlier run the current one, after every byte was compared with its manifest.

    Raises:
        NotAllowed: There is no such run, or its raw data cannot be verified.
    """
    ledger = ledger_of(app)
    queries = PartitionQueries(ledger)
    facts = queries.get(partition)
    if facts is None:
        raise NotAllowed(f"no data is stored for {partition}")
    run = _earlier_run(facts, queries.history(partition), run_id)
    extraction = find_extraction(app, partition.source, partition.query_name)
    if extraction is None:
        raise NotAllowed(
            f"the raw data of run {run.run_id} cannot be checked, because the ledger does not "
            "know the store; "
            "name the app that does (--ledger module:app; in code: Operator(app, ...))"
        )
    _verify_bytes(extraction, partition, run)
    authority = VerdictWriter(ledger, [extraction.limits])
    return authority.rollback(partition, run.run_id, actor=actor, because=because)


def _dataset_of(partition: Partition) -> str:
    return label(partition.source, partition.query_name)


def _is_changed(act: Steer, facts: PartitionView) -> bool:
    if act in ("pause", "unpause"):
        return (facts.paused is None) == (act == "pause")
    if act == "clear_terminal":
        return facts.terminal is not None
    return _keeps_run(facts) or (facts.status != "success" and not _is_marked(facts))


def _keeps_run(facts: PartitionView) -> bool:
    """Return whether the partition is accepted, and its newer run was rejected."""
    return facts.shade == "refresh_failed"


def _is_marked(facts: PartitionView) -> bool:
    """Return whether an operator marked the partition as given up."""
    return (facts.terminal or "").startswith(f"{MANUAL}:")


def _earlier_run(
    facts: PartitionView, runs: Sequence[PartitionRun], run_id: str | None
) -> PartitionRun:
    """Return the run with this id, or else the last accepted run before the current one."""
    if run_id is not None and run_id == facts.current_run_id:
        raise NotAllowed(f"run {run_id} is already the current run")
    accepted = [
        run
        for run in runs
        if run.verdict is not None
        and run.verdict.decision == run.state == "accepted"
        and run.run_id != facts.current_run_id
    ]
    names = ", ".join(run.run_id for run in accepted[:MAX_NAMED_RUNS]) or "none"
    if run_id is not None:
        matches = [run for run in accepted if run.run_id == run_id]
        problem = f"no accepted run {run_id}; other accepted runs: {names}"
    else:
        matches = [run for run in accepted if run.attempt_no < facts.current_attempt_no]
        problem = f"no accepted run before the current run; other accepted runs (--to RUN): {names}"
    if not matches:
        raise NotAllowed(f"{facts.partition} has {problem}")
    return matches[0]


def _verify_bytes(extraction: Extraction, partition: Partition, run: PartitionRun) -> None:
    digest = None if run.verdict is None else run.verdict.manifest
    try:
        load_raw(extraction.store(), partition, run.raw_run_id, digest=digest).check_digests()
    except StorageError as problem:
        raise NotAllowed(f"cannot return to run {run.run_id}: {problem}") from problem
