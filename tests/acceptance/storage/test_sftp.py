"""SFTP when it goes wrong: connecting is tried again, and nothing else is; nothing half-written stays."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from redrive import RetryPolicy, classify, deadline, outcome, retry
from redrive.errors import Denied, NotFound, StorageError, Unavailable
from redrive.storage import Store
from redrive.storage.sftp import Sftp, act
from redrive.testing import instant
from redrive.testing.storage.sample import body
from tests.servers.relay import Relay, Step

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.05, backoff_max=0.1, jitter=0.0)


@pytest.fixture
def made(sftp_options: dict[str, Any]) -> Iterator[Callable[..., Store]]:
    """Makes stores on the server, or on a relay before it, each in a folder of its own."""
    backends: list[Sftp] = []

    def make(relay: Relay | None = None, policy: RetryPolicy | None = QUICK, **options: Any) -> Store:
        given = {**sftp_options, "timeout": 30.0, "retry": policy} | options
        if relay is not None:
            given |= {"port": relay.port, "known_hosts": None, "any_host_key": True}
        backends.append(Sftp("box", **given))
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
def test_connecting_is_tried_as_often_as_the_policy_says(made: Callable[..., Store], server_port: int, step: Step) -> None:
    with Relay(server_port, step) as relay:
        store = made(relay, timeout=0.5 if step == "silent" else 30.0)
        with pytest.raises(Unavailable) as caught:
            store.read_bytes("file")
        assert relay.counted(3) == 3
        if step != "silent":  # there a busy machine may see connections long after they came
            first, second = relay.waits
            assert first >= 0.05
            assert second >= 0.1
        found = outcome(caught.value)
        assert found is not None
        assert found.attempts == 3
        assert classify(caught.value).retryable


@pytest.mark.req("S-3")
@pytest.mark.parametrize("step", ["reset", 500])
def test_a_connection_that_comes_at_last(made: Callable[..., Store], server_port: int, step: Step) -> None:
    with Relay(server_port, step, step, "pass") as relay:
        store = made(relay)
        store.write("file", b"x")
        assert store.read_bytes("file") == b"x"
        assert relay.count == 3


@pytest.mark.req("S-3")
def test_nobody_is_there(made: Callable[..., Store]) -> None:
    with Relay(1) as relay:
        port = relay.port
    with instant(jitter=0.0) as clock:
        store = made(policy=None, port=port)
        with pytest.raises(Unavailable):
            store.check()
        assert clock.slept == [2.0, 4.0]  # without a policy: 3 attempts, 2 to 10 s
        clock.slept.clear()
        store = made(policy=RetryPolicy(max_attempts=9, backoff_base=5.0, backoff_max=10.0, jitter=0.0, timeout=20.0), port=port)
        with pytest.raises(Unavailable):
            store.check()
        assert clock.slept == [5.0, 10.0]  # a third wait would end at 25 s


@pytest.mark.req("S-3")
def test_authentication_is_not_tried_again(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        with pytest.raises(Denied, match="rejected the login") as caught:
            made(relay, password="wrong hunter2").check()
        assert relay.count == 1
        assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"
        assert not classify(caught.value).retryable


@pytest.mark.req("S-3")
def test_a_server_that_nobody_knows_is_not_trusted(server_port: int, tmp_path: Path) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    with Relay(server_port) as relay:
        backend = Sftp("box", host="127.0.0.1", port=relay.port, known_hosts=str(empty), username="x", password="y", retry=QUICK)
        with pytest.raises(Denied, match="host key cannot be verified"):
            backend.check()
        backend.close()
        assert relay.count == 1


@pytest.mark.req("S-3")
def test_waits_are_those_of_tenacity() -> None:
    from tenacity import RetryCallState, Retrying, wait_exponential

    state = RetryCallState(Retrying(), None, (), {})
    for base, most in ((0.05, 0.1), (2.0, 10.0), (5.0, 60.0)):
        policy = RetryPolicy(max_attempts=9, backoff_base=base, backoff_max=most, jitter=0.0)
        theirs = wait_exponential(multiplier=base, max=most)
        for number in range(1, 9):
            state.attempt_number = number
            assert policy.wait(number, 0.0) == pytest.approx(theirs(state))


@pytest.mark.req("S-3", "S-11")
def test_a_request_is_not_tried_again(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = made(relay)
        store.write("file", b"old")
        done = threading.Event()
        with pytest.raises(Unavailable):
            store.write("file", _dropping(relay, done))
        assert done.is_set()
        assert relay.count <= 2  # the second to take away what was half-written
        assert store.read_bytes("file") == b"old"
        assert list(store.files()) == ["file"]


def _dropping(relay: Relay, done: threading.Event) -> Iterator[bytes]:
    yield body(5_000_000)
    relay.drop()
    done.set()
    yield body(5_000_000)


@pytest.mark.req("S-11")
def test_a_read_that_breaks(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = made(relay)
        store.write("file", body(20_000_000))
        with store.read("file") as file:
            assert file.read(10) == body(20_000_000)[:10]
            relay.drop()
            with pytest.raises(Unavailable):
                file.read()
        assert store.read_bytes("file") == body(20_000_000)


@pytest.mark.req("S-11")
def test_retries_around_it_do_not_multiply(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port, "reset") as relay:
        outer = retry(RetryPolicy(max_attempts=3, backoff_base=0.01, jitter=0.0))
        with pytest.raises(Unavailable):
            outer.call(made(relay).check)
        assert relay.count == 3


def test_a_deadline_reaches_the_connection(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port, "reset") as relay:
        store = made(relay, RetryPolicy(max_attempts=100, backoff_base=0.1, backoff_max=0.1, jitter=0.0))
        with pytest.raises(Unavailable), deadline(0.5):
            store.check()
        assert relay.count <= 6


def test_a_deadline_reaches_a_request(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = made(relay)
        store.write("file", b"x")
        relay.hold()
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="no answer in time"), deadline(0.3):
            store.read_bytes("file")
        assert time.monotonic() - begun < 15
        relay.go_on()
        assert store.read_bytes("file") == b"x"
        assert relay.count == 1  # the connection is no worse for it


@pytest.mark.req("S-11")
def test_a_server_that_falls_silent(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = made(relay)
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
        assert relay.count == 2  # not behind the one that got no answer


@pytest.mark.req("S-12")
def test_a_writer_killed_in_the_middle_leaves_the_old_file(sftp_options: dict[str, Any]) -> None:
    folder = f"test-{uuid.uuid4().hex[:8]}"
    store = Store(Sftp("box", **sftp_options), root_path=folder)
    store.write("file", b"old")
    program = f"""
import json, sys, time
from redrive.storage import Store
from redrive.storage.sftp import Sftp, act
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


def test_a_full_disk(openssh_options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """No disk is: a file that the server may not write to the end of stands for one."""
    backend = Sftp("box", **openssh_options)
    store = Store(backend)
    store.write("full", b"old")
    opened = act.open_beside

    async def closed_too_early(session: Any, root: str, target: str) -> tuple[str, Any]:
        temporary, file = await opened(session, root, target)
        await session._handler.close(file.handle)  # each write fails from now on, as those beyond the last block do
        return temporary, file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(act, "open_beside", closed_too_early)
        with pytest.raises(StorageError, match="the server says: Failure"):
            store.write("full", bytes(9_000_000))
    assert store.read_bytes("full") == b"old"
    assert list(store.files()) == ["full"]
    store.delete("full")
    backend.close()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]  # nobody is told twice


def test_a_reader_that_stops_in_the_middle(made: Callable[..., Store], caplog: pytest.LogCaptureFixture) -> None:
    store = made()
    store.write("file", body(20_000_000))
    for _ in range(3):
        with store.read("file") as file:
            assert file.read(5_000_000) == body(20_000_000)[:5_000_000]  # and more is on its way
    assert store.read_bytes("file") == body(20_000_000)
    store.backend.close()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_reader_who_got_no_answer_hears_of_it_once(
    made: Callable[..., Store], server_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Relay(server_port) as relay:
        store = made(relay)
        store.write("file", body(20_000_000))
        with store.read("file") as file:
            file.read(5_000_000)
            relay.hold()
            cast(Sftp, store.backend)._connection._timeout = 0.3
            with pytest.raises(Unavailable, match="no answer in time"):
                file.read()
        store.backend.close()
        gc.collect()
        assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_missing_root(made: Callable[..., Store]) -> None:
    store = made(root="/nowhere/at/all")
    for step in (store.check, lambda: next(store.files()), lambda: store.write("file", b"x")):
        with pytest.raises(NotFound, match="the folder /nowhere/at/all is missing on the server"):
            step()


def test_a_folder_in_the_way(made: Callable[..., Store]) -> None:
    store = made()
    store.write("folder/file", b"x")
    with pytest.raises(StorageError, match="is a folder"):
        store.write("folder", b"x")
    with pytest.raises(StorageError, match="a part of it is a file"):
        store.write("folder/file/inside", b"x")
    store.delete("folder")
    assert list(store.files()) == ["folder/file"]


def test_permission_denied(openssh_options: dict[str, Any]) -> None:
    if os.geteuid() == 0:
        backend = Sftp("box", **{**openssh_options, "root": "/proc/1/task"})  # nobody, not even root, writes there
        with pytest.raises(StorageError):
            Store(backend).write("file", b"x")
    else:
        backend = Sftp("box", **{**openssh_options, "root": "/"})
        with pytest.raises(Denied):
            Store(backend).write("file", b"x")
    backend.close()


def test_a_forked_child_connects_anew(made: Callable[..., Store], server_port: int) -> None:
    with Relay(server_port) as relay:
        store = made(relay)
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


def test_no_thread_is_left(made: Callable[..., Store]) -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "redrive-box"]

    store = made()
    store.write("file", b"x")
    assert ours() == ["redrive-box"]
    store.backend.close()
    assert ours() == []
