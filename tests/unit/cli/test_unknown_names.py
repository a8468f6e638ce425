"""A filter with an unknown name is not a filter without a match."""

from __future__ import annotations

import pytest

from redrive.cli.unknown_names import unknown_name
from redrive.ledger import Ledger
from tests.unit.cli.command import call

REASON = ("--because", "x", "--yes", "--max", "9")


def test_similar_names_are_suggested() -> None:
    known = ["crm.sync", "crm.syncs", "receipts.send"]
    assert unknown_name("job type", "crm.sync", known) is None
    assert unknown_name("job type", "crm.snyc", known) == (
        "No job type 'crm.snyc' in this ledger; did you mean crm.sync or crm.syncs?"
    )
    assert unknown_name("job type", "nosuch", known) == "No job type 'nosuch' in this ledger."


@pytest.mark.req("O-1")
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("jobs", "list", "--kind", "crm.snyc"), 0),
        (("dead", "list", "--kind", "crm.snyc"), 0),
        (("dead", "export", "--kind", "crm.snyc"), 0),
        (("dead", "replay", "--kind", "crm.snyc", *REASON), 1),
        (("dead", "discard", "--kind", "crm.snyc", *REASON), 1),
        (("failures", "--kind", "crm.snyc"), 0),
        (("journal", "tail", "--kind", "crm.snyc"), 0),
    ],
)
def test_a_mistyped_job_type_is_named(busy: Ledger, arguments: tuple[str, ...], status: int) -> None:
    done = call(*arguments)
    assert done[0] == status
    assert "'crm.snyc' in this ledger; did you mean crm.sync?" in " ".join(done[1].split())


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("dead", "list"), 0),
        (("dead", "export"), 0),
        (("dead", "replay", *REASON), 1),
        (("dead", "discard", *REASON), 1),
        (("events", "replay", *REASON), 1),
    ],
)
def test_a_mistyped_reason_is_named(busy: Ledger, arguments: tuple[str, ...], status: int) -> None:
    done = call(*arguments, "--reason", "stoped")
    assert done[0] == status
    assert "No reason 'stoped' in this ledger; did you mean stopped?" in " ".join(done[1].split())


def test_an_unknown_source_is_named(busy: Ledger) -> None:
    assert call("events", "list", "--source", "webhok")[:2] == (0, "No source 'webhok' in this ledger.\n")
