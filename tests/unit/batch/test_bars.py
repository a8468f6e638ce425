"""The progress bar: what it shows of a batch, and that it shows nothing where nobody looks."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from redrive.batch import Report, bar, progress, retrying
from redrive.journal import Ring
from redrive.testing import instant
from tests.unit.batch.world import Script, Sender, Store, partial, success


class Stepping(Sender):
    """Says how far it is."""

    def send_pending(self, flight: str = "f") -> Report:
        report = self.pass_()
        progress(1, len(report.items))
        return report


def shown(*, terminal: bool = True) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120, color_system=None), out


def test_a_bar_for_a_batch() -> None:
    console, out = shown()
    store = Store(counts={"bad": 4})
    ids = ["bad", *(f"t{n}" for n in range(11))]
    inner = Stepping(store, ids, lambda item, turn: "checksum" if item == "bad" else "503 busy" if turn == 1 else "")
    with instant(), bar(console):
        retrying(inner, items=store, operation="tiles").send_pending()
        retrying(Script(success("a")), items=store, operation="tiles").send_pending()
    text = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", out.getvalue())
    assert "tiles" in text
    assert "1/1" in text
    assert "1 acknowledged, 0 pending" in text


def test_what_is_said_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.progress import Progress

    said: list[str] = []
    update = Progress.update

    def noted(self: Progress, task: object, **fields: object) -> None:
        said.append(str(fields.get("said")))
        update(self, task, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(Progress, "update", noted)
    store = Store(counts={"bad": 4})
    ids = ["bad", *(f"t{n:02}" for n in range(11))]
    inner = Stepping(store, ids, lambda item, turn: "checksum" if item == "bad" else "503 busy" if turn == 1 else "")
    with instant(), bar(shown()[0]):
        retrying(inner, items=store, operation="tiles").send_pending()
    assert said == [
        "sending",
        "outage: 503 busy",
        "0 acknowledged, 11 pending, 1 given up",
        "retry 1 of 3 in 2 s, 11 pending",
        "sending",
        "11 acknowledged, 0 pending, 1 given up",
        "11 acknowledged, 0 pending, 1 given up",
    ]


def test_nothing_without_a_terminal() -> None:
    console, out = shown(terminal=False)
    with instant(), bar(console):
        retrying(Script(partial(a="", b="no"), success("b")), items=Store()).send_pending()
    assert out.getvalue() == ""


def test_steps_are_in_the_journal_under_their_batch(redrive_journal: Ring) -> None:
    retrying(Stepping(Store(), ["a"], lambda *_: ""), items=Store(), operation="tiles").send_pending()
    progress(3)
    steps = [record.fields for record in redrive_journal.records if record.kind == "batch_step"]
    assert steps == [{"operation": "tiles", "done": 1, "total": 1}, {"done": 3}]
