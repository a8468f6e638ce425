"""Uploads, downloads and copies of Graph that break."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redrive import RetryPolicy, classify, deadline
from redrive.errors import AlreadyExists, Denied, NotFound, StorageError, Unavailable
from redrive.storage import Store
from redrive.storage.graph.transfer import UPLOAD_CHUNK_BYTES
from redrive.testing import instant
from redrive.testing.storage import sample_bytes
from tests.acceptance.storage.graph.conftest import LARGE, QUICK, TRANSIENT_FAULTS
from tests.servers.graph import Fault, GraphServer

# ---- uploads ----


@pytest.mark.req("S-9")
@pytest.mark.parametrize("fault", [*TRANSIENT_FAULTS[:-1], "lost"], ids=str)
def test_a_failed_chunk_continues_in_its_session(server: GraphServer, store: Store, fault: Fault) -> None:
    server.fail("PUT upload", fault, fault)
    store.write("large", sample_bytes(LARGE))
    assert store.read_bytes("large") == sample_bytes(LARGE)
    assert server.count("POST createUploadSession") == 1
    assert server.count("GET upload") == 2  # after each failure the client asks for the next byte
    assert server.count("PUT upload") == (3 if fault == "lost" else 5)


@pytest.mark.req("S-9", "S-11")
def test_a_chunk_has_the_attempts_of_the_policy(server: GraphServer, store: Store) -> None:
    server.fail("PUT upload", *[503] * 99)
    with pytest.raises(Unavailable):
        store.write("large", sample_bytes(LARGE))
    assert server.count("PUT upload") == 3
    assert server.count("POST createUploadSession") == 1
    assert server.count("DELETE upload") == 1
    assert server.drive.uploads == {}
    assert not store.exists("large")


@pytest.mark.req("S-9")
def test_every_chunk_has_its_own_attempts(server: GraphServer, store: Store) -> None:
    server.fail("PUT upload", 503, 503, (202, "", {}), 503, 503)  # the third response is empty
    with pytest.raises(StorageError, match="does not say from where on"):
        store.write("large", sample_bytes(LARGE))
    server.fail("PUT upload", 503, 503)
    store.write("large", sample_bytes(LARGE))
    assert store.read_bytes("large") == sample_bytes(LARGE)


@pytest.mark.req("S-9")
def test_an_upload_continues_at_the_byte_that_the_server_expects(server: GraphServer, store: Store) -> None:
    begin = server.drive.begin

    def start(path: str, conflict: str) -> str:
        name = begin(path, conflict)
        server.drive.uploads[name].takes = 1_000_000  # only a part of the first chunk
        return name

    server.drive.begin = start  # type: ignore[method-assign]
    store.write("large", sample_bytes(LARGE))
    assert store.read_bytes("large") == sample_bytes(LARGE)
    sizes = [request.size for request in server.of("PUT upload")]
    last = UPLOAD_CHUNK_BYTES - 1_000_000 + 12_345
    assert sizes == [UPLOAD_CHUNK_BYTES, UPLOAD_CHUNK_BYTES, last]


@pytest.mark.req("S-9")
def test_an_upload_without_progress_is_an_error(server: GraphServer, store: Store) -> None:
    begin = server.drive.begin

    def start(path: str, conflict: str) -> str:
        name = begin(path, conflict)
        server.drive.uploads[name].takes = 0
        return name

    server.drive.begin = start  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="does not move: at byte 0 the server asks for byte 0"):
        store.write("large", sample_bytes(LARGE))
    assert server.count("PUT upload") == 1
    assert server.count("DELETE upload") == 1


@pytest.mark.req("S-9")
@pytest.mark.parametrize("status", [404, 410])
def test_an_expired_session_is_terminal(server: GraphServer, store: Store, status: int) -> None:
    server.fail("PUT upload", (status, "itemNotFound", {}))
    with pytest.raises(StorageError, match="the upload session has expired") as caught:
        store.write("large", sample_bytes(LARGE))
    assert type(caught.value) is StorageError
    assert not classify(caught.value).retryable
    assert server.count("PUT upload") == 1
    assert server.count("POST createUploadSession") == 1


@pytest.mark.req("S-9")
@pytest.mark.parametrize("how", ["write", "create"])
def test_a_lost_response_to_the_last_chunk_is_not_an_error(server: GraphServer, store: Store, how: str) -> None:
    server.fail("PUT upload", "ok", "ok", "lost")  # the last chunk was stored, and the session has ended
    getattr(store, how)("large", sample_bytes(LARGE))
    assert store.read_bytes("large") == sample_bytes(LARGE)
    assert server.count("PUT upload") == 3


def test_create_of_a_small_file_survives_a_lost_response(server: GraphServer, store: Store) -> None:
    server.fail("PUT content", "lost")
    store.create("small", b"mine")
    assert store.read_bytes("small") == b"mine"
    server.fail("PUT content", 503)
    with pytest.raises(AlreadyExists):
        store.create("small", b"another's")


@pytest.mark.req("S-9")
def test_a_locked_file_is_not_retried(server: GraphServer, store: Store) -> None:
    server.fail("PUT upload", (423, "resourceLocked", {}))
    with pytest.raises(Denied, match="is locked"):
        store.write("large", sample_bytes(LARGE))
    assert server.count("PUT upload") == 1


@pytest.mark.req("S-9")
def test_chunks_are_sent_as_documented(server: GraphServer, store: Store) -> None:
    store.write("large", sample_bytes(LARGE))
    ranges = [seen.headers["content-range"] for seen in server.of("PUT upload")]
    assert ranges == [
        f"bytes 0-{UPLOAD_CHUNK_BYTES - 1}/{LARGE}",
        f"bytes {UPLOAD_CHUNK_BYTES}-{2 * UPLOAD_CHUNK_BYTES - 1}/{LARGE}",
        f"bytes {2 * UPLOAD_CHUNK_BYTES}-{LARGE - 1}/{LARGE}",
    ]
    assert UPLOAD_CHUNK_BYTES % (320 * 1024) == 0


# ---- downloads ----


@pytest.mark.req("S-11")
def test_a_broken_download_continues_with_a_range(server: GraphServer, store: Store) -> None:
    store.write("large", sample_bytes(LARGE))
    server.fail("GET bytes", "cut", "cut")
    assert store.read_bytes("large") == sample_bytes(LARGE)
    ranges = [seen.headers.get("range") for seen in server.of("GET bytes")]
    assert ranges[0] is None
    assert len(ranges) == 3
    assert all(ranges[1:])


def test_two_versions_of_a_file_are_not_mixed(server: GraphServer, store: Store) -> None:
    store.write("large", sample_bytes(LARGE))
    server.fail("GET bytes", "cut")
    with store.read("large") as file:
        file.read(10)
        store.write("large", sample_bytes(LARGE, 1))
        with pytest.raises(StorageError, match="was changed while it was read"):
            file.read()


# ---- copy ----


@pytest.mark.req("S-10")
def test_a_copy_is_polled_until_it_ends(server: GraphServer, store: Store) -> None:
    store.write("file", b"x")
    server.drive.looks = 4
    server.fail("GET monitor", 503, "reset")
    store.copy("file", "a/b/copied")
    assert store.read_bytes("a/b/copied") == b"x"
    assert server.count("GET monitor") == 2 + 5
    assert server.count("POST copy") == 1


@pytest.mark.req("S-10")
def test_polling_ends_at_copy_timeout(server: GraphServer, make_store: Callable[..., Store]) -> None:
    server.drive.looks = 10**9
    with instant() as clock:
        store = make_store(RetryPolicy(timeout=5.0), copy_timeout=100.0)
        store.write("file", b"x")
        start = clock.monotonic()
        with pytest.raises(Unavailable, match=r"after 100 s.*copy_timeout"):
            store.copy("file", "copied")
        assert 60 < clock.monotonic() - start <= 100
    assert server.count("POST copy") == 1


@pytest.mark.req("S-10")
@pytest.mark.parametrize(
    ("fault", "error"),
    [((404, "itemNotFound", {}), NotFound), ((403, "accessDenied", {}), Denied), ((400, "invalidRequest", {}), StorageError)],
    ids=str,
)
def test_a_failed_poll_raises_a_storage_error(server: GraphServer, store: Store, fault: Fault, error: type[StorageError]) -> None:
    store.write("file", b"x")
    server.fail("GET monitor", fault)
    with pytest.raises(error):
        store.copy("file", "copied")
    assert server.count("GET monitor") == 1


@pytest.mark.req("S-10")
def test_a_failed_copy_raises_a_storage_error(server: GraphServer, store: Store) -> None:
    store.write("file", b"x")
    store.write("folder/file", b"x")
    with pytest.raises(AlreadyExists, match="nameAlreadyExists"):
        store.copy("file", "folder")  # the service does not replace a folder by a file
    assert store.read_bytes("folder/file") == b"x"


@pytest.mark.req("S-10")
@pytest.mark.parametrize(("policy", "polls"), [(QUICK, 3), (RetryPolicy.disabled(), 1)])
def test_a_poll_has_the_attempts_of_the_policy(
    server: GraphServer, make_store: Callable[..., Store], policy: RetryPolicy, polls: int
) -> None:
    store = make_store(policy)
    store.write("file", b"x")
    server.drive.looks = 5
    server.fail("GET monitor", *[503] * 20)
    with pytest.raises(Unavailable):
        store.copy("file", "copied")
    assert server.count("GET monitor") == polls


@pytest.mark.req("S-10")
def test_polling_ends_at_the_deadline(server: GraphServer, make_store: Callable[..., Store]) -> None:
    store = make_store(QUICK, copy_timeout=600.0)
    store.write("file", b"x")
    server.drive.looks = 10**9
    with pytest.raises(Unavailable, match="after the deadline around the call"), deadline(2):
        store.copy("file", "copied")
