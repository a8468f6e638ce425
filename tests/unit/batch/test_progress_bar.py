"""The progress bar: its states, and no output without a terminal."""

from __future__ import annotations

import io
import re
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console, Group
from rich.progress import TaskID

from redrive.batch import Report, bar, progress, retrying
from redrive.batch.progress_bar import ProgressBars
from redrive.batch.rich_progress import TwoLineProgress
from redrive.journal import Record, Ring
from redrive.testing import instant
from tests.unit.batch.world import Script, Sender, Store, partial, success


class Stepping(Sender):
    """A sender that reports its progress."""

    def send_pending(self, flight: str = "f") -> Report:
        report = self.pass_()
        progress(1, len(report.items))
        return report


def new_console(*, terminal: bool = True, width: int = 120) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=width, color_system=None), out


def test_bar_shows_the_counts_of_a_batch() -> None:
    console, out = new_console()
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


def test_state_text_after_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    say = TwoLineProgress.set_state

    def noted(self: TwoLineProgress, task: TaskID, text: str, /, **fields: Any) -> None:
        said.append(text)
        say(self, task, text, **fields)

    monkeypatch.setattr(TwoLineProgress, "set_state", noted)
    store = Store(counts={"bad": 4})
    ids = ["bad", *(f"t{n:02}" for n in range(11))]
    inner = Stepping(store, ids, lambda item, turn: "checksum" if item == "bad" else "503 busy" if turn == 1 else "")
    with instant(), bar(new_console()[0]):
        retrying(inner, items=store, operation="tiles").send_pending()
    assert said == [
        "sending",
        "0 acknowledged, 11 pending, 1 given up; outage: 503 busy",
        "retry 1 of 3 in {wait}, 11 pending; outage: 503 busy",
        "sending; outage: 503 busy",
        "11 acknowledged, 0 pending, 1 given up",
        "11 acknowledged, 0 pending, 1 given up",
    ]


def frame(lines: TwoLineProgress, out: io.StringIO) -> str:
    """Return the current output of the bar."""
    out.seek(0)
    out.truncate()
    lines.console.print(Group(*lines.get_renderables()))
    return out.getvalue()


def tell(bars: ProgressBars, kind: str, **fields: object) -> None:
    bars(Record(kind, datetime.now(UTC), {"operation": "Sender.send_pending", **fields}))


def test_elapsed_time_and_wait_are_updated_after_a_complete_pass() -> None:
    console, out = new_console()
    now = [100.0]
    console.get_time = lambda: now[0]
    lines = TwoLineProgress(console=console)
    bars = ProgressBars(lines)
    tell(bars, "batch_started")
    tell(bars, "batch_step", done=5, total=5)
    tell(bars, "batch_pass", acknowledged=3, given_up=0, pending=2, sent=5)
    tell(bars, "batch_retry", retry=1, max_retries=3, wait=4.0, pending=2)
    assert "retry 1 of 3 in 4.0 s, 2 pending" in frame(lines, out)
    now[0] += 3
    assert "0:00:03" in frame(lines, out)
    assert "retry 1 of 3 in 1.0 s, 2 pending" in frame(lines, out)
    tell(bars, "batch_ended", acknowledged=5, given_up=0, pending=0, sent=5)
    now[0] += 60
    assert "0:00:03" in frame(lines, out)  # stopped at the end


def test_an_outage_stays_visible_in_the_wait_and_at_the_end() -> None:
    console, out = new_console()
    lines = TwoLineProgress(console=console)
    bars = ProgressBars(lines)
    counts = {"acknowledged": 0, "given_up": 0, "pending": 12, "sent": 12}
    tell(bars, "batch_started")
    tell(bars, "batch_outage", reason="503 overloaded", items=12)
    tell(bars, "batch_pass", **counts)
    tell(bars, "batch_retry", retry=1, max_retries=3, wait=4.0, pending=12)
    assert "outage: 503 overloaded" in frame(lines, out)
    tell(bars, "batch_outage", reason="503 overloaded", items=12)
    tell(bars, "batch_pass", **counts)
    tell(bars, "batch_ended", **counts)
    assert "12 pending; outage: 503 overloaded" in frame(lines, out)
    tell(bars, "batch_started")
    tell(bars, "batch_pass", **counts)
    assert "outage" not in frame(lines, out)


def test_a_terminal_of_80_columns_cuts_nothing() -> None:
    console, out = new_console(width=80)
    lines = TwoLineProgress(console=console)
    bars = ProgressBars(lines)
    tell(bars, "batch_started")
    tell(bars, "batch_outage", reason="503 the receiver is overloaded, see https://status.test", items=12)
    counts = {"acknowledged": 1_234_567, "given_up": 123_456, "pending": 123_456, "sent": 1_481_479}
    tell(bars, "batch_pass", **counts)
    tell(bars, "batch_ended", **counts)
    text = " ".join(frame(lines, out).split())
    assert "1,234,567 acknowledged, 123,456 pending, 123,456 given up; outage: 503 the receiver is" in text
    assert "https://status.test" in text
    assert "…" not in text
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_a_log_line_above_the_bar_stays_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    long = "Sender.send_pending: item k0007 given up (permanent): 410 " + "gone for ever " * 5
    with bar():
        print(long.strip(), file=sys.stderr)
    assert long.strip() in out.getvalue()


def test_no_bar_without_a_terminal() -> None:
    console, out = new_console(terminal=False)
    with instant(), bar(console):
        retrying(Script(partial(a="", b="no"), success("b")), items=Store()).send_pending()
    assert out.getvalue() == ""


def test_progress_is_logged_with_the_operation(redrive_journal: Ring) -> None:
    retrying(Stepping(Store(), ["a"], lambda *_: ""), items=Store(), operation="tiles").send_pending()
    progress(3)
    steps = [record.fields for record in redrive_journal.records if record.kind == "batch_step"]
    assert steps == [{"operation": "tiles", "done": 1, "total": 1}, {"done": 3}]
