"""The logging sink: one line of text, and the fields as `extra`."""

from __future__ import annotations

import logging
import subprocess
import sys
from datetime import datetime, timezone
from types import ModuleType
from typing import Any

import pytest

from redrive.journal import Record
from redrive.journal.bus import emit
from redrive.journal.sinks import logging as logging_sink

AT = datetime(2026, 1, 2, tzinfo=timezone.utc)
TRIED = {"operation": "crm.fetch", "attempt": 1, "max_attempts": 3, "error_class": "OSError", "error": "reset"}


def record(kind: str, **fields: Any) -> Record:
    return Record(kind, AT, {**TRIED, **fields})


@pytest.mark.req("J-3")
@pytest.mark.parametrize(
    ("told", "line"),
    [
        (record("retry", wait=0.25), "crm.fetch: attempt 1 of 3 failed (OSError: reset), again in 0.25 s"),
        (record("retry", wait=1234.5), "crm.fetch: attempt 1 of 3 failed (OSError: reset), again in 1.23e+03 s"),
        (record("giveup", reason="attempts"), "crm.fetch: attempt 1 of 3 failed (OSError: reset), giving up: attempts"),
        (
            record("giveup", reason="error", rejected="stopped"),
            "crm.fetch: attempt 1 of 3 failed (OSError: reset), giving up: stopped",
        ),
        (record("recovered", attempt=2), "crm.fetch: attempt 2 of 3 succeeded"),
        (record("success"), "crm.fetch: attempt 1 of 3 succeeded"),
        (Record("giveup", AT, {"operation": "crm", "attempt": 0, "reason": "breaker_open"}), "crm: not called: breaker_open"),
        (record("retry", wait=5, job_id="3"), "crm.fetch job 3: attempt 1 of 3 failed (OSError: reset), again in 5 s"),
        (record("retry", wait=5, error=""), "crm.fetch: attempt 1 of 3 failed (OSError), again in 5 s"),
        (Record("worker_gone", AT, {"worker": "w1", "leases": 2}), "worker w1: lost; 2 of its jobs or partitions recovered"),
        (Record("worker_gone", AT, {"worker": "w1", "leases": None}), "worker w1: lost"),
        (Record("ledger_back", AT, {"worker": "w1", "seconds": 19.24}), "worker w1: the ledger works again after 19.2 s"),
        (
            Record("chore_failed", AT, {"operation": "datasets", "error": "no file", "error_class": "OSError"}),
            "worker task datasets: failed (OSError: no file), will be retried",
        ),
        (Record("breaker_opened", AT, {"operation": "crm", "note": "a\nb"}), "breaker opened operation=crm note=a b"),
    ],
)
def test_a_record_is_formatted_as_one_line(told: Record, line: str) -> None:
    assert logging_sink.format_record(told) == line


DAY = {"source": "crm", "customer_id": "acme", "query_name": "orders", "logical_date": "2026-11-10"}
KEY = "crm/acme/orders/2026-11-10"


@pytest.mark.req("J-3")
@pytest.mark.parametrize(
    ("told", "line"),
    [
        (record("retry", wait=2, **DAY), f"{KEY}: attempt 1 of 3 failed (OSError: reset), again in 2 s"),
        (record("success", **DAY), f"{KEY}: attempt 1 of 3 succeeded"),
        (
            Record("retry", AT, {"attempt": 1, "max_attempts": 3, "error": "unique(id): 2 of 3", "wait": 2, **DAY}),
            f"{KEY}: attempt 1 of 3 failed (unique(id): 2 of 3), again in 2 s",
        ),
        (
            record("again", wait=61, reason="systemic", **DAY),
            f"{KEY}: attempt 1 of 3 does not count (systemic: OSError: reset), again in 61 s",
        ),
        (
            Record("again", AT, {"attempt": 1, "max_attempts": 3, "wait": None, "reason": "stopped", **DAY}),
            f"{KEY}: attempt 1 of 3 does not count (stopped)",
        ),
        (Record("giveup", AT, {"attempts": 2, "reason": "age", "error": "too old", **DAY}), f"{KEY}: gave up: too old"),
    ],
)
def test_a_record_of_a_partition_names_the_partition(told: Record, line: str) -> None:
    assert logging_sink.format_record(told) == line


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            Record("parked", AT, {"operation": "crm", "reason": "503", "wait": 60.0}),
            "crm: paused after an outage (503), next attempt in 60 s",
        ),
        (Record("parked", AT, {"operation": "crm.sync", "reason": "503"}), "crm.sync: paused after an outage (503)"),
        (Record("unparked", AT, {"operation": "crm"}), "crm: resumed"),
        (Record("unparked", AT, {"operation": "crm", "actor_key": "ann"}), "crm: resumed by ann"),
    ],
)
def test_pause_and_resume_are_formatted(told: Record, line: str) -> None:
    assert logging_sink.format_record(told) == line


@pytest.mark.req("J-3")
def test_line_breaks_in_an_error_are_removed() -> None:
    line = logging_sink.format_record(record("giveup", reason="attempts", error="reset\r\nWARNING all is well\n\tindeed"))
    assert line == "crm.fetch: attempt 1 of 3 failed (OSError: reset WARNING all is well indeed), giving up: attempts"


@pytest.mark.req("J-3")
def test_a_long_error_is_shortened_in_the_line() -> None:
    fits, long = "x" * (200 - len("OSError: ")), "x" * (201 - len("OSError: "))
    assert f"(OSError: {fits})" in logging_sink.format_record(record("giveup", error=fits))
    assert f"(OSError: {fits[:-1]}…)" in logging_sink.format_record(record("giveup", error=long))


@pytest.mark.parametrize(
    ("kind", "reason", "level"),
    [
        ("retry", None, logging.INFO),
        ("recovered", None, logging.INFO),
        ("success", None, logging.INFO),
        ("breaker_closed", None, logging.INFO),
        ("breaker_opened", None, logging.WARNING),
        ("giveup", "attempts", logging.WARNING),
        ("giveup", "not_retryable", logging.INFO),
        ("retry", "attempts", logging.INFO),
    ],
)
def test_giving_up_and_an_open_breaker_are_warnings(kind: str, reason: str | None, level: int) -> None:
    assert logging_sink.level_of(kind, reason) == level


@pytest.mark.req("J-3", "J-1")
def test_a_record_is_logged_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redrive")
    emit("retry", {**TRIED, "wait": 0.5, "team": "sales", "nothing": None})
    (line,) = caplog.records
    assert (line.name, line.levelno) == ("redrive", logging.INFO)
    assert line.getMessage() == "crm.fetch: attempt 1 of 3 failed (OSError: reset), again in 0.5 s"
    assert line.__dict__["redrive"] == {**TRIED, "wait": 0.5, "team": "sales"}
    assert line.__dict__["redrive_kind"] == "retry"


@pytest.mark.req("J-3")
def test_records_below_the_level_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "redrive")
    emit("retry", {**TRIED, "wait": 0.5})
    emit("giveup", {**TRIED, "reason": "attempts"})
    assert [line.levelno for line in caplog.records] == [logging.WARNING]
    assert not logging_sink.is_enabled(logging.INFO)
    assert logging_sink.is_enabled(logging.WARNING)


@pytest.mark.req("J-3")
def test_percent_signs_in_a_message_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redrive")
    emit("giveup", {**TRIED, "error": "100%s %d", "reason": "attempts"})
    assert "100%s %d" in caplog.text


@pytest.mark.parametrize("there", [None, ModuleType("logging")], ids=["not imported", "half imported"])
def test_without_logging_nothing_is_logged_and_nothing_fails(there: ModuleType | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_sink, "is_enabled", logging_sink._find_logger)
    if there is None:
        monkeypatch.delitem(sys.modules, "logging")
    else:
        monkeypatch.setitem(sys.modules, "logging", there)
    assert not logging_sink.is_enabled(logging.WARNING)
    assert logging_sink.is_enabled is logging_sink._find_logger  # found after a later import of logging


@pytest.mark.req("J-3")
def test_an_unconfigured_program_prints_only_its_exception() -> None:
    program = "import logging, redrive\nredrive.retry(max_attempts=2, backoff_base=0, jitter=0, on=IndexError)([].pop)()"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "IndexError" in ran.stderr
    assert "failed (" not in ran.stderr


GIVES_UP = """
{first}
import sys
from redrive.batch import ItemStatus, Report, retrying

class Items:
    def increment(self, item_id): return 5
    def give_up(self, item_id, reason): return True
    def pending(self, among): return set()

class Sender:
    def send_pending(self): return Report("failure", [ItemStatus("t7", "rejected", "checksum")])

retrying(Sender(), items=Items()).send_pending()
"""
GIVEN_UP = "Sender.send_pending: item t7 given up after 5 rejections: checksum\n"


@pytest.mark.req("B-4", "J-3")
@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("", GIVEN_UP),
        ("import logging", GIVEN_UP),
        (
            "import logging; logging.basicConfig()",
            "ERROR:redrive:Sender.send_pending: item t7 given up after 5 rejections: checksum\n",
        ),
        ("import logging; logging.getLogger('redrive').addHandler(logging.NullHandler())", ""),
        ("import logging; logging.getLogger('redrive').setLevel(60)", ""),
    ],
    ids=["no logging", "unconfigured", "configured", "silenced", "level"],
)
def test_a_given_up_item_is_printed_without_logging_setup(first: str, message: str) -> None:
    program = GIVES_UP.replace("{first}", first)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == message


@pytest.mark.req("J-4")
def test_control_characters_never_reach_a_log_line() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202e \r\n fake line"
    fields = {
        "operation": hostile,
        "attempt": 1,
        "max_attempts": 2,
        "error": hostile,
        "error_class": "E",
        "reason": hostile,
        "wait": 1.0,
    }
    for kind in ("retry", "giveup", "recovered", "parked"):
        for shown in (fields, {**fields, "item": hostile}, {**fields, "attempt": None}):
            text = logging_sink.format_record(Record(kind, datetime(2026, 1, 2, tzinfo=timezone.utc), shown))
            assert text.isprintable()
            assert "\\x1b" in text
