"""Errors of HTTP clients, over real connections to a server with scripted faults."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from redrive.core.fault import Fault
from redrive.testing.http_server import Answer, FaultServer, Step, refused, unreachable
from tests.acceptance.classify.clients import CLIENTS, EVERY_CLIENT, Get, catch_fault, hasty, with_urllib

by_client = pytest.mark.parametrize("get", CLIENTS)
by_every_client = pytest.mark.parametrize("get", EVERY_CLIENT)


@pytest.mark.req("C-3")
@by_client
@pytest.mark.parametrize(
    ("status", "kind"),
    [(status, "transient") for status in (425, 500, 502, 503)]
    + [(status, "timeout") for status in (408, 504)]
    + [(429, "throttled")]
    + [(status, "permanent") for status in (400, 401, 403, 404, 409, 410, 412, 422, 423, 501)],
)
def test_http_statuses_are_classified(get: Get, status: int, kind: str) -> None:
    with FaultServer(status) as server:
        _, fault = catch_fault(lambda: get(server.url))
        assert fault == Fault(kind, status=status)  # type: ignore[arg-type]  # the table above has valid kinds
        assert server.count == 1


@pytest.mark.req("R-6")
@by_client
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_in_seconds_sets_the_wait(get: Get, status: int) -> None:
    with FaultServer(Answer(status, {"Retry-After": "7"})) as server:
        assert catch_fault(lambda: get(server.url))[1] == Fault("throttled", 7.0, status=status)


@pytest.mark.req("R-6")
@by_client
def test_retry_after_as_a_date_uses_the_servers_clock(get: Get) -> None:
    then = datetime(2001, 2, 3, 4, 5, 6, tzinfo=timezone.utc)
    headers = {"Date": format_datetime(then, usegmt=True)}
    headers["Retry-After"] = format_datetime(then + timedelta(seconds=90), usegmt=True)
    with FaultServer(Answer(503, headers)) as server:
        assert catch_fault(lambda: get(server.url))[1] == Fault("throttled", 90.0, status=503)


@pytest.mark.req("C-3", "C-10")
@by_every_client
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("reset", "transient"),
        ("close", "transient"),
        ("garbage", "transient"),
        (Answer(body=b"half", trouble="cut"), "transient"),
        ("hang", "timeout"),
        (Answer(body=b"slow", trouble="drip", pace=2), "timeout"),
    ],
    ids=["reset", "close", "garbage", "cut", "hang", "drip"],
)
def test_an_error_after_sending_counts_as_sent(get: Get, step: Step, kind: str) -> None:
    with FaultServer(step) as server, hasty(kind == "timeout"):
        assert catch_fault(lambda: get(server.url))[1] == Fault(kind)  # type: ignore[arg-type]  # as above
        wait_for_request(server)  # aiohttp resends after a reset without reporting it


def wait_for_request(server: FaultServer) -> None:
    """On a busy machine, a client with a short timeout may give up before the server has read its request."""
    limit = time.monotonic() + 30
    while server.count < 1:
        assert time.monotonic() < limit, "the server received no request"
        time.sleep(0.01)


@pytest.mark.req("C-3", "C-10")
@by_every_client
def test_a_refused_connection_means_that_nothing_was_sent(get: Get) -> None:
    with refused() as url:
        assert catch_fault(lambda: get(url))[1] == Fault("transient", sent=False)


@pytest.mark.req("C-3", "C-10")
@by_every_client
def test_an_unknown_host_means_that_nothing_was_sent(get: Get) -> None:
    assert catch_fault(lambda: get("http://no-such-host.invalid/"))[1] == Fault("transient", sent=False)


@pytest.mark.req("C-3", "C-10")
@by_every_client
def test_a_connect_timeout_means_that_nothing_was_sent(get: Get) -> None:
    with unreachable() as url, hasty():
        fault = catch_fault(lambda: get(url))[1]
    # urllib wraps connect and send timeouts alike, so whether the request was sent is unknown.
    assert fault == Fault("timeout", sent=get is with_urllib)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    """A server with an untrusted certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stranger")])
    now = datetime.now(timezone.utc)
    unsigned = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    unsigned = unsigned.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    file: Path = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + unsigned.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with FaultServer(200, tls=context) as server:
        yield server


@pytest.mark.req("C-3", "C-10")
@by_every_client
def test_an_untrusted_certificate_is_permanent(get: Get, stranger: FaultServer) -> None:
    assert catch_fault(lambda: get(stranger.url))[1] == Fault("permanent", sent=False)
    assert stranger.count == 0


@pytest.mark.req("C-3")
@by_every_client
def test_tls_to_a_plaintext_server_is_permanent(get: Get) -> None:
    with FaultServer() as server:
        assert catch_fault(lambda: get(server.url.replace("http", "https")))[1] == Fault("permanent", sent=False)


@pytest.mark.req("C-10")
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_an_exhausted_pool_means_that_nothing_was_sent(library: str) -> None:
    client = pytest.importorskip(library)
    with FaultServer(Answer(body=b"later", trouble="drip", pace=0.1)) as server:
        limits, timeout = client.Limits(max_connections=1), client.Timeout(60, pool=0.1)
        with client.Client(limits=limits, timeout=timeout) as session, session.stream("GET", server.url):
            error, fault = catch_fault(lambda: session.get(server.url))
        assert type(error).__name__ == "PoolTimeout"
        assert fault == Fault("timeout", sent=False)
        assert server.count == 1
