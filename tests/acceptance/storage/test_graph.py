"""Graph when it goes wrong: what reaches the wire, who gets the token, and that nothing half-written stays."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from redrive import RetryPolicy, classify, errors, outcome, retry
from redrive.errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
from redrive.storage import Store
from redrive.storage.graph import Graph, monitor
from redrive.storage.graph.upload import CHUNK
from redrive.testing import instant
from redrive.testing.storage.sample import body
from tests.servers.graph import Fault, GraphServer, graph_server

QUICK = RetryPolicy(max_attempts=3, backoff_base=0.01, backoff_max=0.02, jitter=0.0)
LARGE = 2 * CHUNK + 12_345
TOKEN = "good"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GraphServer]:
    monkeypatch.setattr(monitor, "FIRST", 0.01)
    with graph_server() as found:
        yield found


@pytest.fixture
def made(server: GraphServer) -> Iterator[Callable[..., Store]]:
    """Makes stores of the server, with options of one's own."""
    backends: list[Graph] = []

    def make(policy: RetryPolicy | None = QUICK, **options: Any) -> Store:
        given: dict[str, Any] = {"drive": "drives/d1", "token": TOKEN, "base_url": f"{server.service}/v1.0", "timeout": 5.0}
        backends.append(Graph("one", retry=policy, **given | options))
        return Store(backends[-1])

    yield make
    for backend in backends:
        backend.close()


@pytest.fixture
def store(made: Callable[..., Store]) -> Store:
    return made()


# ---- what is tried again, and how often ----

AGAIN: list[Fault] = [500, 502, 503, 504, (429, "activityLimitReached", {}), "reset", "cut"]


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
    assert store.exists("file")
    first, second = (later.at - earlier.at for earlier, later in pairwise(server.of("GET item")))
    assert 0.95 <= first < 2.0  # a busy machine sees the first request later than it came
    assert second < 0.9


@pytest.mark.req("S-11")
def test_retries_around_it_do_not_multiply(server: GraphServer, store: Store) -> None:
    server.fail("GET item", *[503] * 99)
    outer = retry(RetryPolicy(max_attempts=3, backoff_base=0.01, jitter=0.0))
    with pytest.raises(Unavailable):
        outer.call(store.info, "file")
    assert server.count("GET item") == 3


# ---- the token ----


@pytest.mark.req("S-8")
def test_a_token_that_ran_out_is_renewed_once(server: GraphServer, made: Callable[..., Store]) -> None:
    given = iter(["old", "new", "never"])
    store = made(token=lambda: next(given))
    server.tokens = {"new"}
    store.write("file", b"x")
    assert server.count("PUT content") == 2
    assert store.read_bytes("file") == b"x"
    assert next(given) == "never"


@pytest.mark.req("S-8")
def test_a_second_refusal_is_final(server: GraphServer, made: Callable[..., Store]) -> None:
    asked: list[str] = []
    store = made(token=lambda: asked.append("x") or f"bad-{len(asked)}")  # type: ignore[func-returns-value]
    with pytest.raises(Denied, match="token is refused") as caught:
        store.info("file")
    assert server.count("GET item") == 2
    assert len(asked) == 2
    assert "bad-" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.req("S-8")
def test_a_refresh_that_fails(server: GraphServer, made: Callable[..., Store]) -> None:
    def provider() -> str:
        raise RuntimeError("no network, secret=hunter2")

    with pytest.raises(Denied, match="no token could be had: RuntimeError") as caught:
        made(token=provider).info("file")
    assert "hunter2" not in str(caught.value)
    assert server.count("GET item") == 0


@pytest.mark.req("S-8", "S-11")
def test_an_app_logs_in_by_itself(server: GraphServer, made: Callable[..., Store]) -> None:
    app = {"tenant_id": "t", "client_id": "c", "client_secret": "s3cret", "token": None, "login_url": server.service}
    store = made(**app)
    store.write("file", b"x")
    server.tokens.clear()  # all run out
    assert store.read_bytes("file") == b"x"
    assert server.count("POST token") == 2
    server.tokens.clear()
    server.fail("POST token", *[503] * 99)
    with pytest.raises(Unavailable):
        store.info("file")
    assert server.count("POST token") == 2 + 3  # not three times three
    server.faults.clear()
    with pytest.raises(Denied, match="no token could be had") as caught:
        made(**app | {"client_secret": "wrong"}).info("file")
    assert "wrong" not in str(caught.value)


@pytest.mark.req("S-9")
def test_the_token_goes_to_the_service_alone(server: GraphServer, store: Store) -> None:
    store.write("large", body(LARGE))
    assert store.read_bytes("large") == body(LARGE)
    store.copy("large", "copied")
    for seen in server.seen:
        to_the_service = seen.label.split()[1] not in ("upload", "bytes", "monitor")
        assert ("authorization" in seen.headers) == to_the_service, seen.label
    assert {seen.label for seen in server.seen} >= {"PUT upload", "GET bytes", "GET monitor"}


@pytest.mark.req("S-8")
def test_a_listing_that_leads_elsewhere_is_not_followed(server: GraphServer, store: Store) -> None:
    for number in range(3):
        store.write(f"file{number}", b"x")
    server.page = 2
    server.next_host = server.other
    with pytest.raises(Denied, match="where the token must not go"):
        list(store.files())
    assert not [seen for seen in server.seen if seen.label == "GET v1.0"]


@pytest.mark.req("S-8")
def test_a_redirect_is_not_followed(server: GraphServer, store: Store) -> None:
    server.fail("GET item", (302, "moved", {"location": f"{server.other}/bytes/1"}))
    with pytest.raises(StorageError):
        store.info("file")
    assert server.count("GET bytes") == 0


@pytest.mark.req("S-8")
def test_no_key_is_logged_or_shown(server: GraphServer, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store.write("large", body(LARGE))
    store.read_bytes("large")
    server.fail("GET bytes", *[503] * 9)
    server.fail("PUT upload", *[503] * 9)
    shown = [repr(store), repr(vars(store.backend))]
    for act in (lambda: store.read_bytes("large"), lambda: store.write("large", body(LARGE))):
        with pytest.raises(Unavailable) as caught:
            act()
        error: BaseException | None = caught.value
        while error is not None:
            shown.append(f"{error!r} {getattr(error, '__notes__', '')}")
            error = error.__cause__ or error.__context__
    everything = "\n".join([*shown, *(record.getMessage() for record in caplog.records)])
    for secret in ("download-key", "upload-key", TOKEN):
        assert secret not in everything


# ---- uploads ----


@pytest.mark.req("S-9")
@pytest.mark.parametrize("fault", [*AGAIN[:-1], "lost"], ids=str)
def test_a_chunk_that_fails_goes_on_in_its_session(server: GraphServer, store: Store, fault: Fault) -> None:
    server.fail("PUT upload", fault, fault)
    store.write("large", body(LARGE))
    assert store.read_bytes("large") == body(LARGE)
    assert server.count("POST createUploadSession") == 1
    assert server.count("GET upload") == 2  # after each failure it is asked where to go on
    assert server.count("PUT upload") == (3 if fault == "lost" else 5)


@pytest.mark.req("S-9", "S-11")
def test_a_chunk_has_the_attempts_of_the_policy(server: GraphServer, store: Store) -> None:
    server.fail("PUT upload", *[503] * 99)
    with pytest.raises(Unavailable):
        store.write("large", body(LARGE))
    assert server.count("PUT upload") == 3
    assert server.count("POST createUploadSession") == 1
    assert server.count("DELETE upload") == 1
    assert server.drive.uploads == {}
    assert not store.exists("large")


@pytest.mark.req("S-9")
def test_every_chunk_has_attempts_of_its_own(server: GraphServer, store: Store) -> None:
    server.fail("PUT upload", 503, 503, (202, "", {}), 503, 503)  # the third gets an answer that says nothing
    with pytest.raises(StorageError, match="does not say from where on"):
        store.write("large", body(LARGE))
    server.fail("PUT upload", 503, 503)
    store.write("large", body(LARGE))
    assert store.read_bytes("large") == body(LARGE)


@pytest.mark.req("S-9")
def test_the_server_says_where_to_go_on(server: GraphServer, store: Store) -> None:
    begin = server.drive.begin

    def begun(path: str, conflict: str) -> str:
        name = begin(path, conflict)
        server.drive.uploads[name].takes = 1_000_000  # a part of the first chunk only
        return name

    server.drive.begin = begun  # type: ignore[method-assign]
    store.write("large", body(LARGE))
    assert store.read_bytes("large") == body(LARGE)
    assert [seen.size for seen in server.of("PUT upload")] == [CHUNK, CHUNK, CHUNK - 1_000_000 + 12_345]


@pytest.mark.req("S-9")
def test_no_progress_is_an_error(server: GraphServer, store: Store) -> None:
    begin = server.drive.begin

    def begun(path: str, conflict: str) -> str:
        name = begin(path, conflict)
        server.drive.uploads[name].takes = 0
        return name

    server.drive.begin = begun  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="does not move: at byte 0 the server asks for byte 0"):
        store.write("large", body(LARGE))
    assert server.count("PUT upload") == 1
    assert server.count("DELETE upload") == 1


@pytest.mark.req("S-9")
@pytest.mark.parametrize("status", [404, 410])
def test_an_expired_session_is_terminal(server: GraphServer, store: Store, status: int) -> None:
    server.fail("PUT upload", (status, "itemNotFound", {}))
    with pytest.raises(StorageError, match="the upload session has expired") as caught:
        store.write("large", body(LARGE))
    assert type(caught.value) is StorageError
    assert not classify(caught.value).retryable
    assert server.count("PUT upload") == 1
    assert server.count("POST createUploadSession") == 1


@pytest.mark.req("S-9")
@pytest.mark.parametrize("how", ["write", "create"])
def test_the_last_answer_lost_is_no_loss(server: GraphServer, store: Store, how: str) -> None:
    server.fail("PUT upload", "ok", "ok", "lost")  # the last chunk was taken, and the session is gone
    getattr(store, how)("large", body(LARGE))
    assert store.read_bytes("large") == body(LARGE)
    assert server.count("PUT upload") == 3


def test_a_small_file_whose_answer_was_lost_is_created_once(server: GraphServer, store: Store) -> None:
    server.fail("PUT content", "lost")
    store.create("small", b"mine")
    assert store.read_bytes("small") == b"mine"
    server.fail("PUT content", 503)
    with pytest.raises(AlreadyExists):
        store.create("small", b"another's")


@pytest.mark.req("S-9")
def test_a_locked_file_is_not_waited_for(server: GraphServer, store: Store) -> None:
    server.fail("PUT upload", (423, "resourceLocked", {}))
    with pytest.raises(Denied, match="is locked"):
        store.write("large", body(LARGE))
    assert server.count("PUT upload") == 1


@pytest.mark.req("S-9")
def test_chunks_are_sent_as_documented(server: GraphServer, store: Store) -> None:
    store.write("large", body(LARGE))
    ranges = [seen.headers["content-range"] for seen in server.of("PUT upload")]
    assert ranges == [
        f"bytes 0-{CHUNK - 1}/{LARGE}",
        f"bytes {CHUNK}-{2 * CHUNK - 1}/{LARGE}",
        f"bytes {2 * CHUNK}-{LARGE - 1}/{LARGE}",
    ]
    assert CHUNK % (320 * 1024) == 0


# ---- downloads ----


@pytest.mark.req("S-11")
def test_a_body_that_breaks_goes_on_by_range(server: GraphServer, store: Store) -> None:
    store.write("large", body(LARGE))
    server.fail("GET bytes", "cut", "cut")
    assert store.read_bytes("large") == body(LARGE)
    ranges = [seen.headers.get("range") for seen in server.of("GET bytes")]
    assert ranges[0] is None
    assert len(ranges) == 3
    assert all(ranges[1:])


def test_a_file_that_changed_in_between_is_not_mixed(server: GraphServer, store: Store) -> None:
    store.write("large", body(LARGE))
    server.fail("GET bytes", "cut")
    with store.read("large") as file:
        file.read(10)
        store.write("large", body(LARGE, 1))
        with pytest.raises(StorageError, match="was changed while it was read"):
            file.read()


# ---- copy ----


@pytest.mark.req("S-10")
def test_a_copy_is_watched_until_it_ends(server: GraphServer, store: Store) -> None:
    store.write("file", b"x")
    server.drive.looks = 4
    server.fail("GET monitor", 503, "reset", (429, "busy", {"Retry-After": "0"}))
    store.copy("file", "a/b/copied")
    assert store.read_bytes("a/b/copied") == b"x"
    assert server.count("GET monitor") == 3 + 5
    assert server.count("POST copy") == 1


@pytest.mark.req("S-10")
def test_a_monitor_that_never_ends_is_bounded_by_copy_timeout(server: GraphServer, made: Callable[..., Store]) -> None:
    server.drive.looks = 10**9
    with instant() as clock:
        store = made(RetryPolicy(timeout=5.0), copy_timeout=100.0)
        store.write("file", b"x")
        begun = clock.monotonic()
        with pytest.raises(Unavailable, match=r"after 100 s.*copy_timeout"):
            store.copy("file", "copied")
        assert 60 < clock.monotonic() - begun <= 100
    assert server.count("POST copy") == 1


@pytest.mark.req("S-10")
@pytest.mark.parametrize(
    ("fault", "error"),
    [((404, "itemNotFound", {}), NotFound), ((403, "accessDenied", {}), Denied), ((400, "invalidRequest", {}), StorageError)],
    ids=str,
)
def test_a_monitor_that_is_gone(server: GraphServer, store: Store, fault: Fault, error: type[StorageError]) -> None:
    store.write("file", b"x")
    server.fail("GET monitor", fault)
    with pytest.raises(error):
        store.copy("file", "copied")
    assert server.count("GET monitor") == 1


@pytest.mark.req("S-10")
def test_a_copy_that_fails_there(server: GraphServer, store: Store) -> None:
    store.write("file", b"x")
    store.write("folder/file", b"x")
    with pytest.raises(AlreadyExists, match="nameAlreadyExists"):
        store.copy("file", "folder")  # the service will not put a file in a folder's place
    assert store.read_bytes("folder/file") == b"x"


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
