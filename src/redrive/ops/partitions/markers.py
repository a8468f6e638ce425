"""Steering: markers and authority: what an operator does to partitions without having them tried again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...core.seconds import whole_number
from ...errors import NotAllowed, StorageError
from ...partitions.key import Partition
from ...partitions.model import Act, Facts, Run, Selection
from ..target.target import ledger_of
from .datasets import checked, extraction
from .selection import acted_on

if TYPE_CHECKING:
    from ...partitions.control.plane import Control
    from ...partitions.datasets.definition import Extraction
    from ..target.target import Operated

Steer: TypeAlias = Literal["mark_terminal", "clear_terminal", "pause", "unpause"]
MOST = 10_000
"""Partitions of one such act."""
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Chosen:
    """Partitions that are to be marked, and how. Making one leaves no trace. Immutable."""

    act: Steer
    ids: tuple[int, ...]
    first: tuple[str, ...]
    """The first of them, as text."""
    changes: int = 0
    """How many of them the act would change."""

    @property
    def count(self) -> int:
        """How many."""
        return len(self.ids)


def chosen(app: Operated, act: Steer, selection: Selection, most: int, /) -> Chosen:
    """Those that match. ValueError: nothing is selected, or too much."""
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    ledger = ledger_of(app)
    checked(app, acted_on(selection, ledger.now()))
    register = Register(ledger)
    found: list[Facts] = []
    while page := register.find(selection, after=found[-1].id if found else 0, limit=PAGE):
        found += page
        if len(found) > most:
            raise ValueError(f"more than {most:,} match; narrow the selection, or pause the whole source")
        if len(page) < PAGE:
            break
    first = tuple(str(one.partition) for one in found[:10])
    return Chosen(act, tuple(one.id for one in found), first, sum(_is_changed(act, one) for one in found))


def _is_changed(act: Steer, facts: Facts) -> bool:
    if act in ("pause", "unpause"):
        return (facts.paused is None) == (act == "pause")
    if act == "clear_terminal":
        return facts.terminal is not None
    return facts.status != "success" and facts.terminal is None


def steered(control: Control, what: Chosen, /, *, actor: str, because: str, grant: int | None) -> Act:
    """Do it, in one transaction with its entry in the audit."""
    if what.act == "clear_terminal":
        return control.clear_terminal(
            what.ids, grant=None if grant is None else whole_number("grant", grant), actor=actor, because=because
        )
    if grant is not None:
        raise TypeError("grant= is only for clear_terminal, which gives terminal partitions new attempts")
    verb = {"mark_terminal": control.mark_terminal, "pause": control.pause, "unpause": control.unpause}[what.act]
    return verb(what.ids, actor=actor, because=because)


def rolled_back(app: Operated, partition: Partition, run_id: str | None, /, *, actor: str, because: str) -> Facts:
    """Move authority back, after every byte of what readers will get was compared with its manifest."""
    from ...partitions.control.verdicts import Authority  # noqa: PLC0415  # the same
    from ...partitions.queries import Register  # noqa: PLC0415

    ledger = ledger_of(app)
    register = Register(ledger)
    facts = register.get(partition)
    if facts is None:
        raise NotAllowed(f"no data is stored for {partition}")
    run = _earlier(facts, register.history(partition), run_id)
    known = extraction(app, partition.source, partition.query_name)
    if known is None:
        raise NotAllowed(
            f"the raw data of run {run.run_id} cannot be checked, because the ledger does not know the store; "
            "name the app that does (--ledger module:app; in code: Operator(app, ...))"
        )
    _verified(known, partition, run)
    return Authority(ledger, [known.terms]).rollback(partition, run.run_id, actor=actor, because=because)


def _earlier(facts: Facts, runs: Sequence[Run], run_id: str | None) -> Run:
    accepted = [one for one in runs if one.verdict is not None and one.verdict.decision == "accepted" and one.state == "accepted"]
    others = [one for one in accepted if one.run_id != facts.current_run_id]
    said = ", ".join(one.run_id for one in others[:5]) or "none"
    if run_id is None:
        before = [one for one in others if one.attempt_no < facts.current_attempt_no]
        if not before:
            beside = f"other accepted runs (--to RUN): {said}"
            raise NotAllowed(f"{facts.partition} has no accepted run before the current run; {beside}")
        return before[0]
    if run_id == facts.current_run_id:
        raise NotAllowed(f"run {run_id} is already the current run")
    found = next((one for one in others if one.run_id == run_id), None)
    if found is None:
        raise NotAllowed(f"{facts.partition} has no accepted run {run_id}; other accepted runs: {said}")
    return found


def _verified(known: Extraction, partition: Partition, run: Run) -> None:
    from ...partitions.raw.files import raw  # noqa: PLC0415  # storage: not before it is looked at

    digest = None if run.verdict is None else run.verdict.manifest
    try:
        raw(known.store(), partition, run.raw_run_id, digest=digest).verified()
    except StorageError as problem:
        raise NotAllowed(f"cannot return to run {run.run_id}: {problem}") from problem
