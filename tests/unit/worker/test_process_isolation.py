"""Options of commands in processes, and references to their functions."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import pytest

from redrive import App
from redrive.errors import LedgerError, MemoryLimitExceeded
from redrive.ledger.db.address import parse
from redrive.worker.capacity import Capacity
from redrive.worker.job_type import JobType, ProcessCrashed
from redrive.worker.outcome import decide_failure
from redrive.worker.processes.protocol import Decoder, Ready, check_processes, encode, load_job_type, reference_to
from redrive.worker.worker import core_count
from tests.acceptance.worker import isolated

from .test_outcome import NOW, lease

pytestmark = pytest.mark.req("Q-9")
FILE = parse("sqlite:///shop.db")


def decorate(fn: Any, **options: Any) -> Any:
    return App("sqlite://").command("shop.work", **options)(fn)


def plain() -> None: ...


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "error", "says"),
    [
        (plain, {"isolation": "thread"}, ValueError, "shop.work: isolation= must be 'process' or None, not 'thread'"),
        (coroutine, {"isolation": "process"}, TypeError, "is async; isolation='process' is for sync functions"),
        (plain, {"isolation": "process", "in_transaction": True}, TypeError, "cannot be combined"),
        (plain, {"memory_limit": "512MB"}, TypeError, "memory_limit= needs isolation='process'"),
        (plain, {"isolation": "process", "memory_limit": "512"}, ValueError, "invalid memory_limit= '512': use a size such as"),
        (plain, {"isolation": "process", "memory_limit": "1MB"}, ValueError, "at least 32,000,000"),
        (plain, {"isolation": "process", "memory_limit": True}, ValueError, "invalid memory_limit= True"),
        (lambda: None, {"isolation": "process"}, TypeError, "define it at the top level of a module"),
    ],
)
def test_misuse_is_rejected_when_the_command_is_registered(fn: Any, options: dict[str, Any], error: Any, says: str) -> None:
    with pytest.raises(error) as raised:
        decorate(fn, **options)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("limit", "size"), [("512MB", 512_000_000), ("1.5 GB", 1_500_000_000), ("64MiB", 64 * 1024**2), (40_000_000, 40_000_000)]
)
def test_a_memory_limit_is_a_size_or_a_number_of_bytes(limit: Any, size: int) -> None:
    assert decorate(plain, isolation="process", memory_limit=limit).job_type.memory_limit == size


def test_a_command_is_found_by_its_module_and_name() -> None:
    job_type = isolated.work.job_type
    reference = reference_to(job_type)
    assert load_job_type(reference) is job_type
    assert (reference.module, reference.name, reference.script) == ("tests.acceptance.worker.isolated", "work", None)


def test_a_function_that_is_not_the_command_of_its_module_is_rejected() -> None:
    job_type = decorate(plain, isolation="process").job_type
    with pytest.raises(TypeError, match="is not the command 'shop.work' in its module, so that a new process cannot import it"):
        reference_to(job_type)
    with pytest.raises(LookupError, match="is not a command in a new process"):
        load_job_type(reference_to(isolated.work.job_type)._replace(name="Path"))


def test_a_ledger_in_memory_is_rejected() -> None:
    with pytest.raises(LedgerError, match="needs a ledger that other processes reach"):
        check_processes([isolated.work.job_type], parse("sqlite://"))


def test_other_systems_are_rejected_when_a_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    check_processes([isolated.work.job_type], FILE)
    with pytest.raises(RuntimeError, match="isolated.memory: memory_limit= needs Linux"):
        check_processes([isolated.eat_memory.job_type], FILE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        with pytest.raises(RuntimeError, match="needs Linux or macOS"):
            check_processes([isolated.work.job_type], FILE)


def test_messages_are_read_in_pieces() -> None:
    decoder, sent = Decoder(), encode(Ready(7)) + encode(Ready(8))
    read = []
    for place in range(len(sent)):
        decoder.feed(sent[place : place + 1])
        message = decoder.next()
        if message is not None:
            read.append(message)
    assert read == [Ready(7), Ready(8)]


def decide(crashes: int, attempt: int = 1) -> Any:
    job_type: JobType = isolated.work.job_type
    held = lease(attempt, crashes=crashes)
    error = ProcessCrashed("the process of the job was killed by SIGSEGV")
    return decide_failure(job_type, held, error, now=NOW, draw=0.0, max_payload=1 << 20)


def test_the_third_crash_is_the_last() -> None:
    first = decide(0)
    assert (first.record, first.reason, first.settlement.outcome, first.settlement.reason) == (
        "retry",
        "crashed_process",
        "again",
        "crashed_process",
    )
    assert first.settlement.error == "the process of the job was killed by SIGSEGV (crash 1)"
    assert first.verdict == "charged", "a crash is not evidence of an outage"
    last = decide(2)
    assert (last.record, last.settlement.outcome, last.settlement.reason) == ("giveup", "dead", "crashed_process")
    assert decide(0, attempt=5).settlement.outcome == "dead", "no attempt is left"


def test_processes_have_a_capacity_of_their_own() -> None:
    job_type = replace(isolated.work.job_type, name="p")
    capacity = Capacity([job_type], 8, 100, processes=2)
    assert capacity.group_of("p") == "process"
    assert capacity.free("process") == 2
    assert capacity.acquire([(job_type, lease())]) == 0.0, "it needs no thread of the worker"
    assert (capacity.free("process"), capacity.free("thread")) == (1, 8)
    capacity.release([lease()])
    assert capacity.free("process") == 2


def test_the_number_of_cores_is_at_least_one() -> None:
    assert core_count() >= 1


def test_a_memory_error_of_ours_is_a_memory_error() -> None:
    assert isinstance(MemoryLimitExceeded("too much"), MemoryError)
