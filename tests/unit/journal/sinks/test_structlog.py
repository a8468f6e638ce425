"""The structlog sink, with the real library."""

from __future__ import annotations

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from redrive import correlate, journal, retry
from redrive.journal import bus
from redrive.journal.sinks.structlog import StructlogSink
from redrive.testing import inject, instant


@pytest.mark.req("J-3", "J-4")
def test_a_record_is_an_event_with_its_fields() -> None:
    @retry(operation="billing.fetch", max_attempts=2)
    def fetch() -> str:
        return "ok"

    unsubscribe = journal.subscribe(journal.structlog(), inline=True)
    try:
        with capture_logs() as lines, instant(), correlate(request_id="r-1"):
            with inject(fetch, ConnectionError("token=s3cret")):
                fetch()
            with inject(fetch, *[ConnectionError("x")] * 2), pytest.raises(ConnectionError):
                fetch()
    finally:
        unsubscribe()
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("retry", "info"),
        ("recovered", "info"),
        ("retry", "info"),
        ("giveup", "warning"),
    ]
    assert (lines[0]["operation"], lines[0]["request_id"], lines[0]["attempt"]) == ("billing.fetch", "r-1", 1)
    assert "s3cret" not in str(lines)


@pytest.mark.req("J-3")
def test_reserved_field_names_get_a_suffix() -> None:
    heard: list[dict[str, object]] = []

    class Logger:
        def log(self, level: int, event: str, **fields: object) -> None:
            heard.append({"level": level, "said": event, **fields})

    unsubscribe = journal.subscribe(StructlogSink(Logger()), inline=True)
    try:
        bus.emit("note", {"event": "e", "level": "l", "number": 1})
    finally:
        unsubscribe()
    assert heard[0] | {"at": None} == {
        "level": logging.INFO,
        "said": "note",
        "at": None,
        "event_": "e",
        "level_": "l",
        "number": 1,
    }


@pytest.mark.req("J-3")
def test_a_logger_that_raises_loses_only_the_record() -> None:
    def broken(*_: object) -> structlog.typing.EventDict:
        raise RuntimeError("a processor of somebody's")

    logger = structlog.wrap_logger(structlog.PrintLogger(), processors=[broken])
    before = journal.dropped()
    unsubscribe = journal.subscribe(journal.structlog(logger), inline=True)
    try:
        bus.emit("note", {})
    finally:
        unsubscribe()
    assert journal.dropped() == before + 1
