"""TLS: the handshake ends with the attempt, and an untrusted server receives nothing."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from redrive import RetryPolicy, outcome, retry
from redrive.testing import Answer, FaultServer
from tests.acceptance.http.both import Mode, client
from tests.servers.certificate import self_signed

ONCE = retry(RetryPolicy(max_attempts=2, backoff_base=0, jitter=0), attempt_timeout=1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a self-signed certificate for 127.0.0.1."""
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(certificate: Path) -> Iterator[FaultServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with FaultServer(tls=context) as server:
        yield server


def trusting(mode: Mode, certificate: Path) -> httpx2.Client | httpx2.AsyncClient:
    context = ssl.create_default_context(cafile=certificate)
    return httpx2.Client(verify=context) if mode == "sync" else httpx2.AsyncClient(verify=context)


@pytest.mark.req("H-1", "H-4")
def test_a_users_client_brings_its_certificates(mode: Mode, secure: FaultServer, certificate: Path) -> None:
    mine = trusting(mode, certificate)
    secure.script(503, Answer(body=b"here"), Answer(body=b"x" * 2000, trouble="drip", pace=0.02))
    with client(mode, secure.url, retry=ONCE, client=mine) as api:
        assert api.get("/").text == "here"
        began = time.monotonic()
        with pytest.raises(httpx2.ReadTimeout):
            api.get("/")
        assert time.monotonic() - began < 30
        if isinstance(mine, httpx2.Client):
            mine.close()
        else:
            api.result(mine.aclose())


@pytest.mark.req("C-10")
def test_an_untrusted_server_is_not_retried(mode: Mode, secure: FaultServer) -> None:
    with client(mode, secure.url, auth="t0ken", retry=ONCE) as api, pytest.raises(httpx2.ConnectError) as caught:
        api.get("/")
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (1, "not_retryable")
    assert secure.count == 0


@pytest.mark.req("C-8", "C-10")
def test_an_endless_handshake_ends_with_the_attempt(mode: Mode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"https://127.0.0.1:{deaf.getsockname()[1]}"
        with client(mode, url, retry=ONCE) as api:
            began = time.monotonic()
            with pytest.raises(httpx2.ConnectTimeout) as caught:
                api.post("/", json={})
            assert 1.5 < time.monotonic() - began < 30
    ended = outcome(caught.value)
    assert ended is not None
    assert (ended.attempts, ended.reason) == (2, "attempts"), "nothing was sent: it may be tried again without a key"
