"""The token of Graph: which hosts get it, and when it is renewed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from redrive.errors import Denied, StorageError, Unavailable
from redrive.storage import Store
from redrive.testing.storage import sample_bytes
from tests.acceptance.storage.graph.conftest import LARGE, TOKEN
from tests.servers.graph import GraphServer


@pytest.mark.req("S-8")
def test_an_expired_token_is_renewed_once(server: GraphServer, make_store: Callable[..., Store]) -> None:
    tokens = iter(["old", "new", "never"])
    store = make_store(token=lambda: next(tokens))
    server.tokens = {"new"}
    store.write("file", b"x")
    assert server.count("PUT content") == 2
    assert store.read_bytes("file") == b"x"
    assert next(tokens) == "never"


@pytest.mark.req("S-8")
def test_a_second_rejection_of_the_token_is_final(server: GraphServer, make_store: Callable[..., Store]) -> None:
    asked: list[str] = []
    store = make_store(token=lambda: asked.append("x") or f"bad-{len(asked)}")  # type: ignore[func-returns-value]
    with pytest.raises(Denied, match="token was rejected") as caught:
        store.info("file")
    assert server.count("GET item") == 2
    assert len(asked) == 2
    assert "bad-" not in f"{caught.value!r} {caught.value.__cause__!r}"


@pytest.mark.req("S-8")
def test_a_failed_refresh_raises_denied(server: GraphServer, make_store: Callable[..., Store]) -> None:
    def provider() -> str:
        raise RuntimeError("no network, secret=hunter2")

    with pytest.raises(Denied, match="no token could be had: RuntimeError") as caught:
        make_store(token=provider).info("file")
    assert "hunter2" not in str(caught.value)
    assert server.count("GET item") == 0


@pytest.mark.req("S-8", "S-11")
def test_an_app_logs_in_with_its_credentials(server: GraphServer, make_store: Callable[..., Store]) -> None:
    app = {"tenant_id": "t", "client_id": "c", "client_secret": "s3cret", "token": None, "login_url": server.service}
    store = make_store(**app)
    store.write("file", b"x")
    server.tokens.clear()  # all tokens expire
    assert store.read_bytes("file") == b"x"
    assert server.count("POST token") == 2
    server.tokens.clear()
    server.fail("POST token", *[503] * 99)
    with pytest.raises(Unavailable):
        store.info("file")
    assert server.count("POST token") == 2 + 3  # not nine attempts
    server.faults.clear()
    with pytest.raises(Denied, match="no token could be had") as caught:
        make_store(**app | {"client_secret": "wrong"}).info("file")
    assert "wrong" not in str(caught.value)


@pytest.mark.req("S-9")
def test_only_the_service_gets_the_token(server: GraphServer, store: Store) -> None:
    store.write("large", sample_bytes(LARGE))
    assert store.read_bytes("large") == sample_bytes(LARGE)
    store.copy("large", "copied")
    for seen in server.seen:
        to_the_service = seen.label.split()[1] not in ("upload", "bytes", "monitor")
        assert ("authorization" in seen.headers) == to_the_service, seen.label
    assert {seen.label for seen in server.seen} >= {"PUT upload", "GET bytes", "GET monitor"}


@pytest.mark.req("S-8")
def test_a_next_page_on_another_host_is_not_followed(server: GraphServer, store: Store) -> None:
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
def test_urls_that_give_access_are_not_logged(server: GraphServer, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store.write("large", sample_bytes(LARGE))
    store.read_bytes("large")
    server.fail("GET bytes", *[503] * 9)
    server.fail("PUT upload", *[503] * 9)
    shown = [repr(store), repr(vars(store.backend))]
    for act in (lambda: store.read_bytes("large"), lambda: store.write("large", sample_bytes(LARGE))):
        with pytest.raises(Unavailable) as caught:
            act()
        error: BaseException | None = caught.value
        while error is not None:
            shown.append(f"{error!r} {getattr(error, '__notes__', '')}")
            error = error.__cause__ or error.__context__
    everything = "\n".join([*shown, *(record.getMessage() for record in caplog.records)])
    for secret in ("download-key", "upload-key", TOKEN):
        assert secret not in everything
