"""The bus: subscriptions, delivery of records, and sinks that fail."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from redrive import correlate, journal, retry
from redrive.core.context import Simulation, simulate
from redrive.journal import Record, bus
from redrive.testing import FakeClock, instant

PATIENCE = 60.0


@pytest.fixture
def log_records() -> Iterator[list[Record]]:
    records: list[Record] = []
    unsubscribe = journal.subscribe(records.append, inline=True)
    yield records
    unsubscribe()


def broken(_: Record) -> NoReturn:
    raise RuntimeError("the sink is broken")


@pytest.mark.req("J-3")
def test_an_inline_sink_receives_records_until_it_unsubscribes() -> None:
    records: list[Record] = []
    unsubscribe = journal.subscribe(records.append, inline=True)
    bus.emit("note", {"number": 1})
    assert [record.fields for record in records] == [{"number": 1}]
    unsubscribe()
    unsubscribe()  # a second call does nothing
    bus.emit("note", {"number": 2})
    assert len(records) == 1


@pytest.mark.req("J-3")
def test_a_sink_subscribed_twice_can_unsubscribe_once() -> None:
    records: list[Record] = []
    first = journal.subscribe(records.append, inline=True)
    second = journal.subscribe(records.append, inline=True)
    bus.emit("note", {})
    assert len(records) == 2
    first()
    first()
    bus.emit("note", {})
    assert len(records) == 3
    second()


@pytest.mark.req("J-3")
def test_a_background_sink_receives_records() -> None:
    records: list[tuple[Record, int]] = []
    unsubscribe = journal.subscribe(lambda record: records.append((record, threading.get_ident())))
    bus.emit("note", {"number": 1})
    assert journal.flush(PATIENCE)
    ((record, thread),) = records
    assert record.fields == {"number": 1}
    assert thread != threading.get_ident()
    unsubscribe()


@pytest.mark.req("J-3")
@pytest.mark.parametrize("inline", [True, False])
def test_a_sink_that_raises_does_not_fail_the_call_and_is_counted(inline: bool, log_records: list[Record]) -> None:
    unsubscribe = journal.subscribe(broken, inline=inline)
    before = journal.dropped()
    with instant() as clock:
        calls = iter([ConnectionError("reset"), None])

        @retry(max_attempts=2, jitter=0)
        def fetch() -> str:
            if error := next(calls):
                raise error
            return "ok"

        assert fetch() == "ok"
        assert clock.slept == [0.25]
    assert journal.flush(PATIENCE)
    assert journal.dropped() - before == 2
    assert [record.kind for record in log_records] == ["retry", "recovered"]
    unsubscribe()
    assert journal.dropped() - before == 2  # lost records are not delivered later


@pytest.mark.req("J-3")
def test_a_slow_sink_does_not_delay_the_call() -> None:
    go = threading.Event()
    unsubscribe = journal.subscribe(lambda _: go.wait(PATIENCE))
    before = journal.dropped()
    began = time.monotonic()
    for number in range(10_050):
        bus.emit("note", {"number": number})
    assert time.monotonic() - began < PATIENCE
    assert 49 <= journal.dropped() - before <= 50
    assert not journal.flush(0.01)
    unsubscribe()  # does not wait, although the queue is full
    go.set()


@pytest.mark.req("J-3")
def test_the_timeout_of_flush_covers_all_sinks() -> None:
    go = threading.Event()
    leave = [journal.subscribe(lambda _: go.wait(PATIENCE)) for _ in range(100)]
    bus.emit("note", {})
    began = time.monotonic()
    assert not journal.flush(0.2)
    assert time.monotonic() - began < 15  # not the timeout for each sink
    go.set()
    assert journal.flush(PATIENCE)
    for unsubscribe in leave:
        unsubscribe()


def test_flush_without_sinks_returns_true() -> None:
    assert journal.flush(0)


@pytest.mark.req("J-3", "J-1")
def test_success_records_go_to_sinks_with_every_only(log_records: list[Record]) -> None:
    every: list[Record] = []
    assert not bus.is_success_wanted()
    unsubscribe = journal.subscribe(every.append, every=True, inline=True)
    assert bus.is_success_wanted()
    bus.emit("success", {})
    bus.emit("note", {})
    unsubscribe()
    assert [record.kind for record in every] == ["success", "note"]
    assert [record.kind for record in log_records] == ["note"]
    assert not bus.is_success_wanted()


@pytest.mark.req("J-1")
def test_a_record_has_correlation_ids_and_no_empty_fields(log_records: list[Record]) -> None:
    with correlate(request_id="r-1", user_id="ann"):
        bus.emit("note", {"user_id": "bob", "http_status": None, "attempt": 0, "retryable": False})
    assert log_records[0].fields == {"request_id": "r-1", "user_id": "bob", "attempt": 0, "retryable": False}


def test_a_record_has_the_time_of_the_current_clock(log_records: list[Record]) -> None:
    clock = FakeClock()
    clock.advance(1e6)
    with simulate(Simulation(clock)):
        bus.emit("note", {})
    assert log_records[0].at == clock.now()


@pytest.mark.req("J-4")
def test_a_record_is_redacted_before_sinks_receive_it(log_records: list[Record]) -> None:
    bus.emit("note", {"token": "hunter2", "error": "password=hunter2", "headers": {"cookie": "hunter2"}})
    assert log_records[0].fields == {"token": "[redacted]", "error": "password=[redacted]", "headers": {"cookie": "[redacted]"}}


@pytest.mark.req("J-3")
def test_fields_that_raise_do_not_fail_the_call(log_records: list[Record]) -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> NoReturn:
            raise RuntimeError("no items for you")

    before = journal.dropped()
    bus.emit("note", {"fields": Hostile(a=1)})
    assert log_records == []
    assert journal.dropped() - before == 1


@pytest.mark.req("J-3")
def test_ctrl_c_in_an_inline_sink_is_not_swallowed() -> None:
    def interrupted(_: Record) -> NoReturn:
        raise KeyboardInterrupt

    unsubscribe = journal.subscribe(interrupted, inline=True)
    with pytest.raises(KeyboardInterrupt):
        bus.emit("note", {})
    unsubscribe()


def test_a_record_is_made_only_if_a_sink_or_the_log_takes_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "redrive")
    monkeypatch.setattr(bus, "SUBSCRIPTIONS", [])  # without the sinks of the plugin and of other fixtures
    assert not bus.is_wanted(20)
    assert bus.is_wanted(30)
    monkeypatch.setattr(bus, "SUBSCRIPTIONS", [bus.Subscription(print, every=False)])
    assert bus.is_wanted(20)
    assert bus.is_wanted(0)


@pytest.mark.parametrize("sink", [None, "print", 5, []])
def test_a_sink_must_be_callable(sink: Any) -> None:
    with pytest.raises(TypeError, match=f"^a sink must be a function of one Record, not {type(sink).__name__}: "):
        journal.subscribe(sink)


@pytest.mark.req("J-3")
def test_sinks_can_subscribe_during_delivery(log_records: list[Record]) -> None:
    stop = threading.Event()
    problems: list[Exception] = []

    def come_and_go() -> None:
        try:
            while not stop.is_set():
                journal.subscribe(lambda _: None, every=True, inline=True)()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(500):
        bus.emit("note", {"number": number})
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [record.fields["number"] for record in log_records] == list(range(500))


FORK = """
import os, signal, sys, threading, time
from importlib.machinery import SourceFileLoader
from redrive import journal
from redrive.journal.bus import emit

journal.subscribe(lambda record: None, inline=True)
loading, load = threading.Event(), SourceFileLoader.exec_module

def slowly(self, module):
    if module.__name__ == "redrive.journal.redaction.redactor":
        loading.set()
        time.sleep(0.3)
    return load(self, module)

SourceFileLoader.exec_module = slowly
thread = threading.Thread(target=emit, args=("note", {}))
thread.start()
assert loading.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)  # a child that hangs is killed
    emit("note", {})
    os._exit(0)
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.req("J-3")
def test_a_child_forked_during_the_first_record_does_not_hang() -> None:
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_package_loads_its_names_lazily() -> None:
    names: list[Callable[..., object] | type] = [journal.Record, journal.Ring, journal.hide, journal.ring]
    names += [journal.otel, journal.prometheus, journal.sentry, journal.structlog]
    known = ["Record", "Ring", "hide", "ring", "otel", "prometheus", "sentry", "structlog"]
    assert [name.__name__ for name in names] == known
    assert set(journal.__all__) == {*known, "Sink", "dropped", "flush", "subscribe"}
    with pytest.raises(AttributeError, match="module 'redrive.journal' has no attribute 'rung'"):
        journal.rung  # type: ignore[attr-defined]  # noqa: B018
