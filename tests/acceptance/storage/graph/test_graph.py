"""Faults of Graph: number of requests, and errors."""

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
from tests.acceptance.storage.graph.conftest import QUICK, TRANSIENT_FAULTS
from tests.servers.graph import Fault, GraphServer


@pytest.mark.req("S-8", "S-11")
@pytest.mark.parametrize("fault", TRANSIENT_FAULTS, ids=str)
def test_a_transient_fault_is_retried_by_the_policy(server: GraphServer, store: Store, fault: Fault) -> None:
    store.write("file", b"x")
    server.fail("GET item", fault, fault)
    assert store.info("file").size == 1
    assert server.count("GET item") == 3
    server.fail("GET item", *[fault] * 9)
    with pytest.raises(Unavailable, match="one: Graph cannot be reached for 'file'") as caught:
        store.info("file")
    assert server.count("GET item") == 6
    assert (caught.value.path, caught.value.backend) == ("file", "one")
    retried = outcome(caught.value)
    assert retried is not None
    assert retried.attempts == 3


@pytest.mark.req("S-8", "S-11")
@pytest.mark.parametrize("label", ["GET item", "GET bytes", "PUT content"])
def test_a_timeout_is_retried_by_the_policy(server: GraphServer, make_store: Callable[..., Store], label: str) -> None:
    store = make_store(timeout=0.3)
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
def test_a_permanent_status_is_not_retried(server: GraphServer, store: Store, fault: Fault, error: type[StorageError]) -> None:
    store.write("file", b"x")
    server.fail("PUT content", fault)
    with pytest.raises(error) as caught:
        store.write("file", b"y")
    assert type(caught.value) is error
    assert server.count("PUT content") == 2
    assert not classify(caught.value).retryable
    assert store.read_bytes("file") == b"x"


@pytest.mark.req("S-8")
def test_the_default_policy_applies_without_a_policy(server: GraphServer, make_store: Callable[..., Store]) -> None:
    with instant(jitter=0.0) as clock:
        store = make_store(None)
        server.fail("GET item", *[503] * 9)
        with pytest.raises(Unavailable):
            store.info("file")
        assert clock.slept == [1.0, 2.0]
    assert server.count("GET item") == 3


@pytest.mark.req("S-8")
def test_all_fields_of_the_policy_apply(server: GraphServer, make_store: Callable[..., Store]) -> None:
    with instant(jitter=0.5) as clock:
        store = make_store(RetryPolicy(max_attempts=5, backoff_base=2.0, backoff_max=5.0, jitter=1.0))
        server.fail("GET item", *[503] * 9)
        with pytest.raises(Unavailable):
            store.info("file")
        assert clock.slept == [2.5, 4.5, 5.5, 5.5]
        clock.slept.clear()
        store = make_store(RetryPolicy(max_attempts=5, backoff_base=2.0, jitter=0.0, timeout=5.0))
        with pytest.raises(Unavailable):
            store.info("file")
        assert clock.slept == [2.0]  # the next would end at 6 s


@pytest.mark.req("S-8")
def test_retry_after_is_a_minimum(server: GraphServer, store: Store) -> None:
    store.write("file", b"x")
    server.fail("GET item", (429, "activityLimitReached", {"Retry-After": "1"}), (503, "busy", {"Retry-After": "0"}))
    with instant() as clock:
        assert store.exists("file")
    first, second = clock.slept
    assert first >= 1
    assert second < 0.9


@pytest.mark.req("S-11")
def test_an_outer_layer_does_not_multiply_the_attempts(server: GraphServer, store: Store) -> None:
    server.fail("GET item", *[503] * 99)
    outer = retry(RetryPolicy(max_attempts=3, backoff_base=0.01, jitter=0.0))
    with pytest.raises(Unavailable):
        outer.call(store.info, "file")
    assert server.count("GET item") == 3


# ---- the rest ----


def test_a_missing_drive_raises_not_found(server: GraphServer, make_store: Callable[..., Store]) -> None:
    store = make_store(drive="drives/other")
    for act in (store.check, lambda: next(store.files()), lambda: store.write("file", b"x")):
        with pytest.raises(NotFound):
            act()


def test_an_unreachable_service_raises_unavailable() -> None:
    from redrive.testing.http_server import refused

    with refused() as url:
        backend = Graph("one", drive="drives/d1", token="x", base_url=url, retry=QUICK)
        with pytest.raises(Unavailable, match="ConnectError"):
            backend.check()


def test_missing_credentials_are_named() -> None:
    with pytest.raises(TypeError, match="graph needs a token, or tenant_id"):
        Graph(drive="d")
    with pytest.raises(TypeError, match="client_secret is missing"):
        Graph(drive="d", tenant_id="t", client_id="c")


def test_a_forked_child_connects_again(store: Store) -> None:
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
