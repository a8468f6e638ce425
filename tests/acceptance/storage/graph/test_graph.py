"""Graph when it goes wrong: what reaches the wire, how often, and what is told."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import pytest

from redrive import RetryPolicy, classify, errors, outcome, retry
from redrive.errors import Denied, NotFound, StorageError, Unavailable
from redrive.storage import Store
from redrive.storage.graph import Graph
from redrive.testing import instant
from tests.acceptance.storage.graph.conftest import AGAIN, QUICK
from tests.servers.graph import Fault, GraphServer


@pytest.mark.req("S-8", "S-11")
@pytest.mark.parametrize("fault", AGAIN, ids=str)
def test_what_may_pass_is_tried_as_often_as_the_policy_says(server: GraphServer, store: Store, fault: Fault) -> None:
    store.write("file", b"x")
    server.fail("GET item", fault, fault)
    assert store.info("file").size == 1
    assert server.count("GET item") == 3
    server.fail("GET item", *[fault] * 9)
    with pytest.raises(Unavailable, match="one: Graph cannot be reached for 'file'") as caught:
        store.info("file")
    assert server.count("GET item") == 6
    assert (caught.value.path, caught.value.backend) == ("file", "one")
    found = outcome(caught.value)
    assert found is not None
    assert found.attempts == 3


@pytest.mark.req("S-8", "S-11")
@pytest.mark.parametrize("label", ["GET item", "GET bytes", "PUT content"])
def test_a_server_that_is_slow_is_asked_as_often(server: GraphServer, made: Callable[..., Store], label: str) -> None:
    store = made(timeout=0.3)
    store.write("file", b"x")
    before = server.count(label)
    server.fail(label, *["slow"] * 9)
    with pytest.raises(Unavailable, match="ReadTimeout"):
        store.write("file", b"y") if label == "PUT content" else store.read_bytes("file")
    assert server.count(label) - before == 3
    server.fail(label, "slow", "slow")
    store.write("file", b"z") if label == "PUT content" else store.read_bytes("file")
    assert server.count(label) - before == 6


NEVER: list[tuple[Fault, type[StorageError]]] = [
    ((423, "resourceLocked", {}), Denied),
    ((403, "accessDenied", {}), Denied),
    ((404, "itemNotFound", {}), NotFound),
    ((400, "invalidRequest", {}), StorageError),
    ((501, "notImplemented", {}), StorageError),
    ((507, "quotaLimitReached", {}), StorageError),
]


@pytest.mark.req("S-8")
@pytest.mark.parametrize(("fault", "error"), NEVER, ids=str)
def test_what_cannot_pass_is_asked_once(server: GraphServer, store: Store, fault: Fault, error: type[StorageError]) -> None:
    store.write("file", b"x")
    server.fail("PUT content", fault)
    with pytest.raises(error) as caught:
        store.write("file", b"y")
    assert type(caught.value) is error
    assert server.count("PUT content") == 2
    assert not classify(caught.value).retryable
    assert store.read_bytes("file") == b"x"


@pytest.mark.req("S-8")
def test_without_a_policy_it_is_the_default_one(server: GraphServer, made: Callable[..., Store]) -> None:
    with instant(jitter=0.0) as clock:
        store = made(None)
        server.fail("GET item", *[503] * 9)
        with pytest.raises(Unavailable):
            store.info("file")
        assert clock.slept == [1.0, 2.0]
    assert server.count("GET item") == 3


@pytest.mark.req("S-8")
def test_all_five_fields_count(server: GraphServer, made: Callable[..., Store]) -> None:
    with instant(jitter=0.5) as clock:
        store = made(RetryPolicy(max_attempts=5, backoff_base=2.0, backoff_max=5.0, jitter=1.0))
        server.fail("GET item", *[503] * 9)
        with pytest.raises(Unavailable):
            store.info("file")
        assert clock.slept == [2.5, 4.5, 5.5, 5.5]
        clock.slept.clear()
        store = made(RetryPolicy(max_attempts=5, backoff_base=2.0, jitter=0.0, timeout=5.0))
        with pytest.raises(Unavailable):
            store.info("file")
        assert clock.slept == [2.0]  # the next would end at 6 s


@pytest.mark.req("S-8")
def test_retry_after_is_a_floor(server: GraphServer, store: Store) -> None:
    store.write("file", b"x")
    server.fail("GET item", (429, "activityLimitReached", {"Retry-After": "1"}), (503, "busy", {"Retry-After": "0"}))
    with instant() as clock:
        assert store.exists("file")
    first, second = clock.slept
    assert first >= 1
    assert second < 0.9


@pytest.mark.req("S-11")
def test_retries_around_it_do_not_multiply(server: GraphServer, store: Store) -> None:
    server.fail("GET item", *[503] * 99)
    outer = retry(RetryPolicy(max_attempts=3, backoff_base=0.01, jitter=0.0))
    with pytest.raises(Unavailable):
        outer.call(store.info, "file")
    assert server.count("GET item") == 3


# ---- the rest ----


def test_a_missing_drive(server: GraphServer, made: Callable[..., Store]) -> None:
    store = made(drive="drives/other")
    for act in (store.check, lambda: next(store.files()), lambda: store.write("file", b"x")):
        with pytest.raises(NotFound):
            act()


def test_nobody_is_there() -> None:
    from redrive.testing.server import refused

    with refused() as url:
        backend = Graph("one", drive="drives/d1", token="x", base_url=url, retry=QUICK)
        with pytest.raises(Unavailable, match="ConnectError"):
            backend.check()


def test_what_must_be_given() -> None:
    with pytest.raises(TypeError, match="graph needs a token, or tenant_id"):
        Graph(drive="d")
    with pytest.raises(TypeError, match="client_secret is missing"):
        Graph(drive="d", tenant_id="t", client_id="c")


def test_a_forked_child_connects_anew(store: Store) -> None:
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
    assert isinstance(errors.NotFound("", path="", backend=""), StorageError)
