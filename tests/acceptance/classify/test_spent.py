"""Errors of layers that have already retried are marked as spent, and others are not. The server counts requests."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import redis
import requests
import stamina
import tenacity
import urllib3
from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy
from azure.core.pipeline.transport import RequestsTransport
from azure.core.rest import HttpRequest
from azure.storage.blob import BlobClient
from botocore.config import Config
from redis.backoff import NoBackoff
from redis.retry import Retry

from redrive.core.fault import Fault
from redrive.testing.http_server import Answer, FaultServer, Step, refused
from tests.acceptance.classify.clients import Limit, catch_fault, google_api, hasty

pytestmark = pytest.mark.req("C-7")
times = pytest.mark.parametrize("retries", [0, 2])


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """Report a socket that a client left open in the test that left it, not in a later one."""
    yield
    gc.collect()


def session(**settings: Any) -> requests.Session:
    client = requests.Session()
    client.mount("http://", requests.adapters.HTTPAdapter(max_retries=urllib3.Retry(**settings)))
    return client


@times
@pytest.mark.parametrize(("step", "kind"), [("reset", "transient"), ("hang", "timeout")])
def test_retries_of_a_requests_adapter_are_detected(retries: int, step: Step, kind: str) -> None:
    with FaultServer(step) as server, session(total=retries) as client, hasty(kind == "timeout"):
        fault = catch_fault(lambda: client.get(server.url, timeout=Limit.seconds))[1]
        assert (fault.kind, fault.spent) == (kind, "urllib3" if retries else None)
        assert server.count == 1 + retries


def test_max_retries_exceeded_of_requests_without_retries_is_not_spent() -> None:
    with refused() as url:
        error, fault = catch_fault(lambda: requests.get(url, timeout=Limit.seconds))
        assert "Max retries exceeded" in str(error)
        assert fault == Fault("transient", sent=False)


def test_an_error_after_client_retries_counts_as_sent() -> None:
    server = FaultServer("close").start()
    with session(total=1, backoff_factor=0) as client:

        class Stopping(urllib3.Retry):
            """The server stops between the attempts. The last error is a refused connection, but the first attempt arrived."""

            def sleep(self, response: object = None) -> None:
                server.close()

        client.mount("http://", requests.adapters.HTTPAdapter(max_retries=Stopping(total=1)))
        fault = catch_fault(lambda: client.get(server.url, timeout=Limit.seconds))[1]
    assert server.count == 1
    assert fault == Fault("transient", spent="urllib3")


@times
def test_status_retries_of_a_requests_adapter_are_detected(retries: int) -> None:
    with FaultServer(503) as server, session(total=retries, status_forcelist=[503]) as client:
        error, fault = catch_fault(lambda: client.get(server.url))
        assert isinstance(error, requests.exceptions.RetryError)
        assert fault == Fault("transient", spent="urllib3" if retries else None, status=503)
        assert server.count == 1 + retries


@times
def test_status_retries_that_return_the_last_response_are_detected(retries: int) -> None:
    with (
        FaultServer(503) as server,
        session(total=retries, status_forcelist=[503], raise_on_status=False) as client,
    ):
        fault = catch_fault(lambda: client.get(server.url).raise_for_status())[1]
        assert fault == Fault("transient", spent="urllib3" if retries else None, status=503)
        assert server.count == 1 + retries


def test_a_redirect_does_not_count_as_a_retry() -> None:
    with FaultServer(Answer(302, {"Location": "/there"}), 503) as server, session(total=5) as client:
        fault = catch_fault(lambda: client.get(server.url).raise_for_status())[1]
        assert fault == Fault("transient", status=503)
        assert server.count == 2


@times
def test_retries_of_urllib3_are_detected(retries: int) -> None:
    with FaultServer("close") as server, urllib3.PoolManager(retries=retries) as pool:
        error, fault = catch_fault(lambda: pool.request("GET", server.url))
        assert isinstance(error, urllib3.exceptions.MaxRetryError)
        assert fault == Fault("transient", spent="urllib3" if retries else None)
        assert server.count == 1 + retries


@times
def test_retries_of_tenacity_are_detected(retries: int) -> None:
    with FaultServer(503) as server:
        layer: Any = tenacity.retry(stop=tenacity.stop_after_attempt(1 + retries))
        error, fault = catch_fault(layer(lambda: requests.get(server.url).raise_for_status()))
        assert isinstance(error, tenacity.RetryError)
        assert fault == Fault("transient", spent="tenacity" if retries else None, status=503)
        assert server.count == 1 + retries


def test_a_retry_error_of_tenacity_for_a_result_is_detected() -> None:
    layer: Any = tenacity.retry(stop=tenacity.stop_after_attempt(2), retry=tenacity.retry_if_result(lambda _: True))
    assert catch_fault(layer(lambda: None))[1] == Fault("transient", spent="tenacity")


def test_retries_of_stamina_cannot_be_detected() -> None:
    with FaultServer(503) as server:
        layer = stamina.retry(on=requests.HTTPError, attempts=2, wait_initial=0, wait_jitter=0)
        assert catch_fault(layer(lambda: requests.get(server.url).raise_for_status()))[1].spent is None
        assert server.count == 2


def s3(url: str, retries: int, mode: str = "standard") -> Any:
    config = Config(
        retries={"total_max_attempts": 1 + retries, "mode": mode},
        s3={"addressing_style": "path"},
        connect_timeout=Limit.seconds,
        read_timeout=Limit.seconds,
    )
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=url, config=config, **keys)


@times
@pytest.mark.parametrize("mode", ["standard", "legacy"])
@pytest.mark.parametrize(("step", "kind"), [(500, "transient"), ("close", "transient"), ("hang", "timeout")])
def test_retries_of_botocore_are_detected(retries: int, mode: str, step: Step, kind: str) -> None:
    with FaultServer(step) as server, hasty(kind == "timeout"):
        fault = catch_fault(lambda: s3(server.url, min(retries, 1), mode).get_object(Bucket="b", Key="k"))[1]
        assert (fault.kind, fault.spent) == (kind, "botocore" if retries else None)
        assert server.count == 1 + min(retries, 1)


@times
def test_a_refused_connection_counts_as_sent_after_botocore_retries(retries: int) -> None:
    with refused() as url:
        fault = catch_fault(lambda: s3(url, min(retries, 1)).get_object(Bucket="b", Key="k"))[1]
        assert fault == (Fault("transient", spent="botocore") if retries else Fault("transient", sent=False))


def pipeline(url: str, retries: int) -> PipelineClient[Any, Any]:
    transport = RequestsTransport(connection_timeout=Limit.seconds, read_timeout=Limit.seconds)
    policies: Any = [RetryPolicy(retry_total=retries, retry_backoff_factor=0.01)]
    return PipelineClient(url, policies=policies, transport=transport)


@times
@pytest.mark.parametrize(("step", "kind"), [("reset", "transient"), ("hang", "timeout")])
def test_retries_of_azure_core_are_detected(retries: int, step: Step, kind: str) -> None:
    with FaultServer(step) as server, hasty(kind == "timeout"), pipeline(server.url, retries) as client:
        fault = catch_fault(lambda: client.send_request(HttpRequest("GET", server.url)))[1]
        assert fault == Fault(kind, spent="azure-core" if retries else None)  # type: ignore[arg-type]  # valid kinds, see above
        assert server.count == 1 + retries


@times
@pytest.mark.parametrize("step", [500, "reset"])
def test_retries_of_azure_storage_are_detected(retries: int, step: Step) -> None:
    waits = {"initial_backoff": 0, "increment_base": 0, "random_jitter_range": 0}
    limits = dict.fromkeys(("retry_total", "retry_connect", "retry_read", "retry_status"), retries)
    blob: Any = BlobClient
    with (
        FaultServer(step) as server,
        blob(f"{server.url}/account", container_name="some", blob_name="b", **waits, **limits) as client,
    ):
        fault = catch_fault(lambda: client.download_blob().readall())[1]
        assert (fault.kind, fault.spent) == ("transient", "azure-core" if retries else None)
        assert server.count == 1 + retries


def test_retries_of_google_api_core_are_detected() -> None:
    exceptions, retry = google_api()

    def call() -> None:
        raise exceptions.from_http_response(requests.get(server.url))

    with FaultServer(503) as server:
        error, fault = catch_fault(retry.Retry(initial=0.01, maximum=0.01, timeout=1)(call))
        assert isinstance(error, exceptions.RetryError)
        assert fault == Fault("transient", spent="google-api-core", status=503)
        assert server.count > 1


def ask_openai(url: str, retries: int) -> object:
    import openai

    with openai.OpenAI(base_url=url, api_key="k", max_retries=retries, timeout=Limit.seconds) as client:
        return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])


def ask_anthropic(url: str, retries: int) -> object:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=retries, timeout=Limit.seconds) as client:
        return client.messages.create(model="m", max_tokens=1, messages=[{"role": "user", "content": "hello"}])


@times
@pytest.mark.req("C-5")
@pytest.mark.parametrize(("ask", "library"), [(ask_openai, "openai"), (ask_anthropic, "anthropic")])
@pytest.mark.parametrize("step", [Answer(500, {"retry-after-ms": "10"}), "reset"], ids=["500", "reset"])
def test_retries_of_llm_clients_are_detected(retries: int, ask: Any, library: str, step: Step) -> None:
    with FaultServer(step) as server:
        fault = catch_fault(lambda: ask(server.url, min(retries, 1)))[1]
        assert (fault.kind, fault.spent) == ("transient", library if retries else None)
        assert server.count == 1 + min(retries, 1)


@times
def test_automatic_retries_of_redis_6_are_detected(retries: int) -> None:
    with refused() as url:
        client = redis.Redis(port=int(url.rpartition(":")[2]), retry=Retry(NoBackoff(), retries))
        fault = catch_fault(client.ping)[1]
        assert fault == (Fault("transient", spent="redis") if retries else Fault("transient", sent=False))
        client.close()


def test_retries_are_detected_without_a_json_body() -> None:
    """The retry count is in a request header, so an unreadable body does not hide it."""
    with FaultServer(Answer(500, {"retry-after-ms": "1"}, json.dumps([1]).encode())) as server:
        assert catch_fault(lambda: ask_openai(server.url, 1))[1].spent == "openai"
