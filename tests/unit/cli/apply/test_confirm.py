"""Plans are confirmed by a yes, by the typed number, or by `--yes --max N`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import typer

from redrive.cli.apply.confirm import Confirmation


@dataclass
class Plan:
    """A plan for a number of partitions."""

    count: int
    act: str = "retry"


def exit_code(confirmation: Confirmation, count: int) -> int:
    with pytest.raises(typer.Exit) as ended:
        confirmation.require(Plan(count))
    return int(ended.value.exit_code)


@pytest.mark.req("O-2")
def test_some_partitions_need_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        questions.append(question)
        return err and len(questions) > 1

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    Confirmation().require_for_partitions(Plan(20))
    assert questions == []
    with pytest.raises(typer.Exit) as ended:
        Confirmation().require_for_partitions(Plan(21))
    assert ended.value.exit_code == 1
    Confirmation().require_for_partitions(Plan(100))
    assert questions == ["Retry 21 partitions?", "Retry 100 partitions?"]


def test_a_script_passes_yes_and_a_maximum(capsys: pytest.CaptureFixture[str]) -> None:
    Confirmation(yes=True, max_count=5).require(Plan(5))
    assert exit_code(Confirmation(yes=True), 5) == 2
    assert exit_code(Confirmation(yes=True, max_count=4), 5) == 1
    assert "--max 4: 5 match; nothing was changed" in capsys.readouterr().err


def test_the_number_is_typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed = iter(["1,000", "999"])
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: next(typed))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    Confirmation().require(Plan(1000))
    assert exit_code(Confirmation(), 1000) == 1
    assert "not confirmed; nothing was changed" in capsys.readouterr().err


def test_the_prompt_names_the_ledger_and_warns_that_a_discard_is_permanent(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def prompt(question: str, **_: object) -> str:
        questions.append(question)
        return "2"

    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    Confirmation().require(Plan(2, "discard"), ledger="sqlite:///shop.db")
    Confirmation().require(Plan(2, "replay"))
    assert questions == ["Type 2 to discard them permanently (ledger sqlite:///shop.db)", "Type 2 to replay them"]
