"""Faults of SFTP: only connecting is retried, and no partial file remains."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from redrive import RetryPolicy, classify, deadline, outcome, retry
from redrive.errors import Denied, NotFound, StorageError, Unavailable
from redrive.storage import Store
from redrive.storage.sftp import Sftp, operations
from redrive.testing import instant
from redrive.testing.storage import sample_bytes
from tests.servers.relay import Relay, Step

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=0.1, jitter=0.0)


@pytest.fixture
def make_store(sftp_options: dict[str, Any]) -> Iterator[Callable[..., Store]]:
    """Yield a function that creates stores on the server or a relay, each in its own folder."""
    backends: list[Sftp] = []

    def make(relay: Relay | None = None, policy: RetryPolicy | None = QUICK, **options: Any) -> Store:
        arguments = {**sftp_options, "timeout": 30.0, "retry": policy} | options
        if relay is not None:
            arguments |= {"port": relay.port, "known_hosts": None, "any_host_key": True}
        backends.append(Sftp("box", **arguments))
        return Store(backends[-1], root_path=f"test-{uuid.uuid4().hex[:8]}")

    yield make
    for backend in backends:
        backend.close()


@pytest.fixture
def server_port(sftp_options: dict[str, Any]) -> int:
    port: int = sftp_options["port"]
    return port


@pytest.mark.req("S-3", "S-11")
@pytest.mark.parametrize("step", ["reset", "silent", 500], ids=["reset", "silent", "cut in the handshake"])
def test_connecting_is_retried_by_the_policy(make_store: Callable[..., Store], server_port: int, step: Step) -> None:
    with Relay(server_port, step) as relay:
        store = make_store(relay, timeout=0.5 if step == "silent" else 30.0)
        with pytest.raises(Unavailable) as caught:
            store.read_bytes("file")
        assert relay.counted(3) == 3
        if step != "silent":  # A busy machine may count those connections late.
            first, second = relay.waits
            assert first >= 0.05
            assert second >= 0.1
        retried = outcome(caught.value)
        assert retried is not None
        assert retried.attempts == 3
        assert classify(caught.value).retryable


@pytest.mark.req("S-3")
@pytest.mark.parametrize("step", ["reset", 500])
def test_connecting_succeeds_at_the_last_attempt(make_store: Callable[..., Store], server_port: int, step: Step) -> None:
    with Relay(server_port, step, step, "pass") as relay:
        store = make_store(relay)
        store.write("file", b"x")
        assert store.read_bytes("file") == b"x"
        assert relay.count == 3


@pytest.mark.req("S-3")
def test_an_unreachable_server_raises_unavailable_after_the_waits(make_store: Callable[..., Store]) -> None:
    with Relay(1) as relay:
        port = relay.port
    with instant(jitter=0.0) as clock:
        store = make_store(policy=None, port=port)
        with pytest.raises(Unavailable):
            store.check()
        assert clock.slept == [2.0, 4.0]  # The default: 3 attempts, 2 to 10 s.
        clock.slept.clear()
        store = make_store(
            policy=RetryPolicy(max_attempts=9, backoff_base=5.0, backoff_max=10.0, jitter=0.0, timeout=20.0), port=port
        )
        with pytest.raises(Unavailable):
            store.check()
        assert clock.slept == [5.0, 10.0]  # a third wait would end at 25 s


@pytest.mark.req("S-3")
def test_a_rejected_login_is_not_retried(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        with pytest.raises(Denied, match="rejected the login") as caught:
            make_store(relay, password="wrong hunter2").check()
        assert relay.count == 1
        assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"
        assert not classify(caught.value).retryable


@pytest.mark.req("S-3")
def test_an_unknown_host_key_is_rejected(server_port: int, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    with Relay(server_port) as relay:
        backend = Sftp("box", host="127.0.0.1", port=relay.port, known_hosts=str(empty), username="x", password="y", retry=QUICK)
        with pytest.raises(Denied, match="host key cannot be verified"):
            backend.check()
        backend.close()
        assert relay.count == 1


@pytest.mark.req("S-3")
def test_waits_equal_those_of_tenacity() -> None:
    from tenacity import RetryCallState, Retrying, wait_exponential

    state = RetryCallState(Retrying(), None, (), {})
    for base, most in ((0.05, 0.1), (2.0, 10.0), (5.0, 60.0)):
        policy = RetryPolicy(max_attempts=9, backoff_base=base, backoff_max=most, jitter=0.0)
        tenacity_wait = wait_exponential(multiplier=base, max=most)
        for number in range(1, 9):
            state.attempt_number = number
            assert policy.wait(number, 0.0) == pytest.approx(tenacity_wait(state))


@pytest.mark.req("S-3", "S-11")
def test_a_request_is_not_retried(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = make_store(relay)
        store.write("file", b"old")
        done = threading.Event()
        with pytest.raises(Unavailable):
            store.write("file", _dropping(relay, done))
        assert done.is_set()
        assert relay.count <= 2  # The second removes the temporary file.
        assert store.read_bytes("file") == b"old"
        assert list(store.files()) == ["file"]


def _dropping(relay: Relay, done: threading.Event) -> Iterator[bytes]:
    yield sample_bytes(5_000_000)
    relay.drop()
    done.set()
    yield sample_bytes(5_000_000)


@pytest.mark.req("S-11")
def test_a_broken_read_raises_unavailable(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = make_store(relay)
        store.write("file", sample_bytes(20_000_000))
        with store.read("file") as file:
            assert file.read(10) == sample_bytes(20_000_000)[:10]
            relay.drop()
            with pytest.raises(Unavailable):
                file.read()
        assert store.read_bytes("file") == sample_bytes(20_000_000)


@pytest.mark.req("S-11")
def test_an_outer_layer_does_not_multiply_the_attempts(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port, "reset") as relay:
        outer = retry(RetryPolicy(max_attempts=3, backoff_base=0.01, jitter=0.0))
        with pytest.raises(Unavailable):
            outer.call(make_store(relay).check)
        assert relay.count == 3


def test_a_deadline_ends_connecting(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port, "reset") as relay:
        store = make_store(relay, RetryPolicy(max_attempts=100, backoff_base=0.1, backoff_max=0.1, jitter=0.0))
        with pytest.raises(Unavailable), deadline(0.5):
            store.check()
        assert relay.count <= 6


def test_a_deadline_ends_a_request_and_keeps_the_connection(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = make_store(relay)
        store.write("file", b"x")
        relay.hold()
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="no answer in time"), deadline(0.3):
            store.read_bytes("file")
        assert time.monotonic() - begun < 15
        relay.go_on()
        assert store.read_bytes("file") == b"x"
        assert relay.count == 1  # The connection is still open.


@pytest.mark.req("S-11")
def test_a_request_timeout_drops_the_connection(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = make_store(relay)
        store.write("file", b"x")
        relay.hold()
        connection = cast(Sftp, store.backend)._connection
        connection._timeout = 0.3
        with pytest.raises(Unavailable, match="no answer in time"):
            store.read_bytes("file")
        assert relay.count == 1
        relay.go_on()
        connection._timeout = 30.0
        assert store.read_bytes("file") == b"x"
        assert relay.count == 2  # Not behind the request without a response.


@pytest.mark.req("S-12")
def test_a_writer_killed_in_the_middle_leaves_the_old_file(sftp_options: dict[str, Any]) -> None:
    folder = f"test-{uuid.uuid4().hex[:8]}"
    store = Store(Sftp("box", **sftp_options), root_path=folder)
    store.write("file", b"old")
    program = f"""
import json, sys, time
from redrive.storage import Store
from redrive.storage.sftp import Sftp
def pieces():
    yield bytes(9_000_000)
    print("half way", flush=True)
    time.sleep(60)
Store(Sftp("box", **json.loads(sys.argv[1])), root_path={folder!r}).write_atomic("file", pieces())
"""
    with subprocess.Popen([sys.executable, "-c", program, json.dumps(sftp_options)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half way\n"
        writer.kill()
    assert store.read_bytes("file") == b"old"
    assert list(store.files()) == ["file"]
    store.backend.close()


def test_a_failed_write_keeps_the_old_file(openssh_options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Simulates a full disk: the server closes the file before the last write."""
    backend = Sftp("box", **openssh_options)
    store = Store(backend)
    store.write("full", b"old")
    open_temporary = operations.open_temporary

    async def closed_too_early(session: Any, root: str, target: str) -> tuple[str, Any]:
        temporary, file = await open_temporary(session, root, target)
        await session._handler.close(file.handle)  # Every later write fails.
        return temporary, file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "open_temporary", closed_too_early)
        with pytest.raises(StorageError, match="the server says: Failure"):
            store.write("full", bytes(9_000_000))
    assert store.read_bytes("full") == b"old"
    assert list(store.files()) == ["full"]
    store.delete("full")
    backend.close()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]  # No error is reported twice.


def test_a_reader_may_stop_early_without_asyncio_errors(
    make_store: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    store.write("file", sample_bytes(20_000_000))
    for _ in range(3):
        with store.read("file") as file:
            assert file.read(5_000_000) == sample_bytes(20_000_000)[:5_000_000]  # More bytes were requested ahead.
    assert store.read_bytes("file") == sample_bytes(20_000_000)
    store.backend.close()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_read_ahead_that_fails_leaves_no_asyncio_error(caplog: pytest.LogCaptureFixture) -> None:
    class File:
        is_closed = False

        async def close(self) -> None:
            self.is_closed = True

    async def close_during_read() -> None:
        pending = Future[bytes]()
        closing = asyncio.create_task(operations.close_after(cast(Any, file), pending))
        await asyncio.sleep(0)
        pending.set_exception(ConnectionError("lost"))
        await closing

    file = File()
    asyncio.run(close_during_read())
    gc.collect()
    assert file.is_closed
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_read_timeout_is_reported_once(
    make_store: Callable[..., Store], server_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Relay(server_port) as relay:
        store = make_store(relay)
        store.write("file", sample_bytes(20_000_000))
        with store.read("file") as file:
            file.read(5_000_000)
            relay.hold()
            cast(Sftp, store.backend)._connection._timeout = 0.3
            with pytest.raises(Unavailable, match="no answer in time"):
                file.read()
        store.backend.close()
        gc.collect()
        assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_missing_root_raises_not_found(make_store: Callable[..., Store]) -> None:
    store = make_store(root="/nowhere/at/all")
    for step in (store.check, lambda: next(store.files()), lambda: store.write("file", b"x")):
        with pytest.raises(NotFound, match="the folder /nowhere/at/all is missing on the server"):
            step()


def test_a_write_to_a_folder_raises_path_invalid(make_store: Callable[..., Store]) -> None:
    store = make_store()
    store.write("folder/file", b"x")
    with pytest.raises(StorageError, match="is a folder"):
        store.write("folder", b"x")
    with pytest.raises(StorageError, match="a part of it is a file"):
        store.write("folder/file/inside", b"x")
    store.delete("folder")
    assert list(store.files()) == ["folder/file"]


def test_missing_permissions_raise_denied(openssh_options: dict[str, Any]) -> None:
    if os.geteuid() == 0:
        backend = Sftp("box", **{**openssh_options, "root": "/proc/1/task"})  # Not even root may write there.
        with pytest.raises(StorageError):
            Store(backend).write("file", b"x")
    else:
        backend = Sftp("box", **{**openssh_options, "root": "/"})
        with pytest.raises(Denied):
            Store(backend).write("file", b"x")
    backend.close()


def test_a_forked_child_connects_again(make_store: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = make_store(relay)
        store.write("file", b"x")
        gc.collect()
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if store.read_bytes("file") == b"x" else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert store.read_bytes("file") == b"x"
        assert relay.count == 2


def test_close_ends_the_thread(make_store: Callable[..., Store]) -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "redrive-box"]

    store = make_store()
    store.write("file", b"x")
    assert ours() == ["redrive-box"]
    store.backend.close()
    assert ours() == []
