"""Errors and retries of real clients: stripe, elasticsearch, pymysql, pymongo and aiohttp-retry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redrive import RetryPolicy, retry
from redrive.core.fault import Fault
from redrive.testing import Answer, FaultServer
from redrive.testing.http_server import refused
from tests.acceptance.classify.clients import catch_fault

pytestmark = pytest.mark.req("C-3")
ELASTIC = {"content-type": "application/json", "x-elastic-product": "Elasticsearch"}
THREE = retry(RetryPolicy(3, 0, 0, 0))


def with_stripe(url: str, retries: int) -> Callable[[], object]:
    stripe: Any = pytest.importorskip("stripe")
    client = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, max_network_retries=retries)
    return lambda: client.v1.customers.retrieve("cus_1")


def with_elasticsearch(url: str, retries: int) -> Callable[[], object]:
    library: Any = pytest.importorskip("elasticsearch")
    client = library.Elasticsearch(url, max_retries=retries)

    def get() -> None:
        try:
            client.get(index="i", id="1")
        finally:
            client.close()

    return get


def answer(status: int) -> Answer:
    return Answer(status, ELASTIC, b'{"error": {"type": "api_error", "message": "no"}}')


@pytest.mark.parametrize("client", [with_stripe, with_elasticsearch])
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [(500, "transient"), (503, "transient"), (429, "throttled"), (400, "permanent"), (401, "permanent"), (404, "permanent")],
)
def test_vendor_statuses_are_classified(client: Callable[..., Any], trouble: int, kind: Any) -> None:
    with FaultServer(answer(trouble)) as server:
        assert catch_fault(client(server.url, 0))[1] == Fault(kind, status=trouble)


@pytest.mark.parametrize("client", [with_stripe, with_elasticsearch])
@pytest.mark.parametrize("trouble", ["reset", "close"])
def test_lost_vendor_connections_are_transient(client: Callable[..., Any], trouble: Any) -> None:
    with FaultServer(trouble) as server:
        assert catch_fault(client(server.url, 0))[1] == Fault("transient")


def test_the_should_retry_header_of_stripe_decides() -> None:
    for word, status, kind in (("false", 500, "permanent"), ("true", 400, "transient")):
        said = Answer(status, {"content-type": "application/json", "stripe-should-retry": word}, b'{"error": {}}')
        with FaultServer(said) as server:
            assert catch_fault(with_stripe(server.url, 0))[1].kind == kind
    with FaultServer(answer(409)) as server:
        assert catch_fault(with_stripe(server.url, 0))[1] == Fault("transient", status=409)


def test_a_refused_vendor_connection_means_that_nothing_was_sent() -> None:
    with refused() as url:
        assert catch_fault(with_stripe(url, 0))[1] == Fault("transient", sent=False)


@pytest.mark.req("C-7")
@pytest.mark.parametrize("client", [with_stripe, with_elasticsearch])
@pytest.mark.parametrize("trouble", [503, "reset"])
def test_retries_of_a_vendor_client_are_not_multiplied(client: Callable[..., Any], trouble: Any) -> None:
    with FaultServer(answer(trouble) if isinstance(trouble, int) else trouble) as server:
        catch_fault(THREE(client(server.url, 1)))
        assert server.count == 2, "the client's two attempts, and not three times two"


@pytest.mark.req("C-7")
def test_retries_of_aiohttp_retry_are_not_multiplied() -> None:
    library: Any = pytest.importorskip("aiohttp_retry")
    options = library.ExponentialRetry(attempts=3, start_timeout=0.001)

    @THREE
    async def fetch(url: str) -> None:
        async with library.RetryClient(raise_for_status=True, retry_options=options) as client, client.get(url):
            pass

    with FaultServer(503) as server:
        with pytest.raises(Exception, match="503"):
            asyncio.run(fetch(server.url))
        assert server.count == 3


def test_mysql_connection_errors_are_classified() -> None:
    pymysql: Any = pytest.importorskip("pymysql")
    with FaultServer() as server:
        port = server.port
    assert catch_fault(lambda: pymysql.connect(host="127.0.0.1", port=port, connect_timeout=5))[1] == Fault(
        "transient", sent=False
    )
    with FaultServer("close") as server:
        limits = {"connect_timeout": 1, "read_timeout": 1}
        assert catch_fault(lambda: pymysql.connect(host="127.0.0.1", port=server.port, **limits))[1].kind == "transient"


def test_mongo_without_a_server_is_a_timeout() -> None:
    pymongo: Any = pytest.importorskip("pymongo")
    with FaultServer() as server:
        port = server.port
    with pymongo.MongoClient("127.0.0.1", port, serverSelectionTimeoutMS=100) as client:
        assert catch_fault(client.db.things.find_one)[1] == Fault("timeout", sent=False)
