"""`redrive limits` and `redrive pause`."""

from __future__ import annotations

import pytest

from redrive.ledger import Ledger
from tests.unit.cli.command import call

BECAUSE = ("--because", "INC-42")


@pytest.mark.req("Q-5")
def test_a_limit_has_its_value_of_the_code_beside_it(ledger: Ledger) -> None:
    in_code = {"crm.sync": {"concurrency": 8, "rate": 5.0}}
    ledger.maintenance.heartbeat("w1", {"kinds": ["crm.sync"], "limits": in_code})
    assert call("limits", "set", "crm.sync", "--concurrency", "2", *BECAUSE)[0] == 0
    status, printed = call("limits", "list", width=100)
    assert status == 0
    cells = [cell for cell in printed.splitlines()[-1].split("  ") if cell]
    assert [cell.strip() for cell in cells[:3]] == ["crm.sync", "2 (code: 8)", "5"], printed


@pytest.mark.req("Q-5")
def test_a_reset_limit_is_not_called_unlimited_if_the_code_is_unknown(ledger: Ledger) -> None:
    set_limit = ("limits", "set", "crm.sync", "--force", "--concurrency", "1200000", *BECAUSE)
    assert call(*set_limit)[1] == "crm.sync: concurrency 1,200,000 (code: –), rate as in the code\n"
    reset = ("limits", "reset", "crm.sync", *BECAUSE)
    assert call(*reset)[1] == "crm.sync: concurrency as in the code, rate as in the code\n"
    ledger.maintenance.heartbeat("w1", {"kinds": ["crm.sync"], "limits": {"crm.sync": {"concurrency": 8}}})
    call(*set_limit)
    assert call(*reset)[1] == "crm.sync: concurrency as in the code (8), rate as in the code\n"


@pytest.mark.req("Q-4")
def test_a_second_pause_names_the_first(ledger: Ledger) -> None:
    pause = ("pause", "job-type", "mail", "--force", "--because")
    assert "replaces" not in call(*pause, "INC-1", width=120)[1]
    status, printed = call(*pause, "INC-2", width=120)
    assert status == 0
    assert "It replaces an earlier pause: paused by" in printed
    assert "until resumed: INC-1" in printed


@pytest.mark.req("Q-4")
def test_an_unknown_source_names_the_option_that_knows_it(ledger: Ledger) -> None:
    status, printed = call("pause", "source", "crm", *BECAUSE, width=300)
    assert status == 1
    assert "--ledger module:app" in printed
    past = ("pause", "app", "--until", "2020-01-01", *BECAUSE)
    assert "until=" not in call(*past, width=300)[1]
