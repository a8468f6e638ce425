"""Old names of operations still work, and warn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from redrive.ops import Operator
from redrive.ops.deprecated import MOVED, RENAMED


@pytest.fixture
def ann() -> Any:
    with open_ledger("sqlite://") as ledger:
        fail_job(ledger)
        yield Operator(ledger, actor="ann")


def fail_job(ledger: Ledger) -> None:
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].dead("attempts", error="it failed"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (lambda ann: ann.dead(kind="mail", limit=5), lambda ann: ann.dead_letters.find()),
        (lambda ann: ann.count_dead(error="failed"), lambda ann: ann.dead_letters.count()),
        (lambda ann: ann.replay(ids=["1"]).ids, lambda ann: (1,)),
        (lambda ann: list(ann.export(kind="other")), lambda ann: []),
        (lambda ann: ann.jobs(kind="mail"), lambda ann: ann.jobs.find()),
        (lambda ann: ann.job(1).job, lambda ann: ann.jobs.get(1).job),
        (lambda ann: ann.counts(), lambda ann: ann.jobs.counts()),
        (lambda ann: ann.reveal("dead", 1, because="x"), lambda ann: ann.dead_letters.reveal(1, because="x")),
        (lambda ann: ann.reveal("job", 1, because="x"), lambda ann: ann.jobs.reveal(1, because="x")),
        (lambda ann: ann.audit(limit=1), lambda ann: ann.audit.find()),
        (lambda ann: ann.nobody(), lambda ann: ann.workers.missing()),
        (lambda ann: ann.partitions.sources(), lambda ann: ann.sources.find()),
        (lambda ann: ann.partitions.backfills(limit=1), lambda ann: ann.backfills.find()),
    ],
)
def test_an_old_name_warns_and_does_the_same(ann: Any, old: Callable[[Any], Any], new: Callable[[Any], Any]) -> None:
    with pytest.warns(DeprecationWarning, match=r"Operator\.\S+ is deprecated; use Operator\.") as warned:
        result = old(ann)
    assert warned[0].filename == __file__, "the warning names the caller"
    assert result == new(ann)


@pytest.mark.parametrize("path", sorted({*RENAMED.values(), *MOVED.values()}))
def test_every_old_name_leads_to_a_method(ann: Any, path: str) -> None:
    method = ann
    for name in path.split("."):
        method = getattr(method, name)
    assert callable(method)


def test_an_unknown_name_is_an_attribute_error(ann: Any) -> None:
    with pytest.raises(AttributeError, match="'Operator' object has no attribute 'relpay'"):
        ann.relpay  # noqa: B018
    with pytest.raises(AttributeError, match="'PartitionOperations' object has no attribute 'paus'"):
        ann.partitions.paus  # noqa: B018
