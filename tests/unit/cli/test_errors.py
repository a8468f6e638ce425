"""An expected error is one line and an exit code."""

from __future__ import annotations

import pytest
import typer

from redrive.cli.errors import exit_on_error
from redrive.errors import Drift, LedgerError, NotAllowed


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LedgerError("ledger: closed"), 3, "redrive: ledger: closed\n"),
        (Drift("changed since the plan"), 4, "redrive: changed since the plan\n"),
        (NotAllowed("already ended"), 1, "redrive: already ended\n"),
        (ValueError("invalid day"), 2, "redrive: invalid day\n"),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, exit_on_error():
        raise error
    assert (ended.value.exit_code, capsys.readouterr().err) == (code, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (False, "redrive: interrupted\n"),
        (True, "redrive: interrupted; completed steps stay, and are in the audit log\n"),
    ],
)
def test_ctrl_c_mentions_completed_steps_only_after_a_change(
    changes: bool, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, exit_on_error(changes=changes):
        raise KeyboardInterrupt
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, message)
