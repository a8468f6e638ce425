"""The actor of an operation, as in the audit log."""

from __future__ import annotations

import getpass

import pytest

from redrive.ledger import Ledger, open_ledger
from redrive.ops.context import user
from redrive.ops.operator import Operator


@pytest.fixture
def ledger() -> Ledger:
    return open_ledger("sqlite:///:memory:", migrate=True)


@pytest.mark.req("O-5")
@pytest.mark.parametrize("actor", ["", "  ", "redrive", " redrive ", None])
def test_an_actor_needs_a_name_other_than_that_of_policies(ledger: Ledger, actor: str) -> None:
    with ledger, pytest.raises(ValueError, match=r"who acts|pass your own name"):
        Operator(ledger, actor=actor)


def test_a_service_user_named_redrive_differs_from_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "redrive")
    assert user().startswith("redrive@")
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    assert user() == "ann"
