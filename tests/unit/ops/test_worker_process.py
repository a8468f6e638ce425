"""Failures on a worker's terminal: selection and limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

import pytest

from redrive.journal import Record
from redrive.ops.worker_process import MOST, MOST_CALLS, WINDOW, FailureLines, is_logging

NOW = datetime(2026, 11, 17, tzinfo=timezone.utc)


def never(seconds: float, function: Callable[[], None]) -> None:
    """Do not call the function."""


def record(kind: str, **fields: Any) -> Record:
    return Record(kind, NOW, {"operation": "mail", "attempt": 1, "max_attempts": 3, **fields})


def test_lines_are_bounded_in_a_window_and_the_rest_is_counted() -> None:
    lines: list[str] = []
    now = [0.0]

    def show(line: str, kind: str, fields: Mapping[str, Any]) -> None:
        lines.append(line)

    sink = FailureLines(show, lambda: now[0], never)
    for _ in range(MOST + 5):
        sink(record("giveup", error="Boom", error_class="ValueError", reason="attempts", job_id=7))
    assert len(lines) == MOST
    now[0] += WINDOW
    sink(record("retry", error="Boom", error_class="ValueError", wait=5.0, job_id=7))
    assert lines[MOST:] == [
        "5 more failures were not printed (5 dead letters); `redrive failures` groups all of them",
        "mail job 7: attempt 1 of 3 failed (ValueError: Boom), again in 5 s",
    ]


def test_failed_attempts_do_not_hide_dead_letters() -> None:
    lines: list[str] = []
    sink = FailureLines(lambda line, kind, fields: lines.append(line), lambda: 0.0, never)
    for job_id in range(MOST + 10):
        sink(record("retry", error="503", error_class="HTTPStatusError", wait=5.0, job_id=job_id))
    for job_id in range(17):
        sink(record("giveup", error="Boom", error_class="ValueError", reason="stopped", job_id=job_id))
    assert len([line for line in lines if "Boom" in line]) == 17
    sink.finish()
    assert lines[-1] == "10 more failures were not printed; `redrive failures` groups all of them"


def test_hidden_lines_are_counted_at_the_end_of_the_window_without_another_record() -> None:
    lines: list[str] = []
    timers: list[tuple[float, Callable[[], None]]] = []
    now = [3.0]
    sink = FailureLines(lambda line, kind, fields: lines.append(line), lambda: now[0], lambda *timer: timers.append(timer))
    for _ in range(MOST + 2):
        now[0] += 0.1
        sink(record("retry", error="503", error_class="HTTPStatusError", wait=5.0, job_id=1))
    ((seconds, end_window),) = timers
    assert 0 < seconds < WINDOW
    end_window()
    assert lines[-1] == "2 more failures were not printed; `redrive failures` groups all of them"


def test_calls_inside_jobs_do_not_hide_the_lines_of_the_jobs() -> None:
    lines: list[str] = []
    sink = FailureLines(lambda line, kind, fields: lines.append(line), lambda: 0.0, never)
    for job_id in range(13):
        for _ in range(3):
            sink(record("retry", error="503", error_class="HTTPStatusError", wait=0.5))
        sink(record("retry", error="503", error_class="HTTPStatusError", wait=5.0, job_id=job_id))
    assert len([line for line in lines if " job " in line]) == 13
    assert len(lines) == 13 + MOST_CALLS
    sink.finish()
    assert lines[-1].startswith(f"{39 - MOST_CALLS} more failures were not printed")


def test_successes_are_not_shown() -> None:
    lines: list[str] = []
    sink = FailureLines(lambda line, kind, fields: lines.append(line))
    for kind in ("success", "recovered", "released", "unparked"):
        sink(record(kind))
    assert lines == []


def test_a_handler_of_the_program_is_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("redrive"), "handlers", [logging.NullHandler()])
    assert not is_logging()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler()])
    assert is_logging()
