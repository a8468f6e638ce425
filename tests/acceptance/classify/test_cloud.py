"""botocore, s3fs, pyarrow, azure-core, google-api-core and obstore against a server that returns their errors."""

from __future__ import annotations

import importlib
import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest
import requests
from azure.core import PipelineClient
from azure.core.pipeline.transport import RequestsTransport
from azure.core.rest import HttpRequest
from azure.storage.blob import BlobClient
from botocore.config import Config
from obstore.store import S3Store

from redrive.core.fault import Fault
from redrive.testing.http_server import Answer, FaultServer, Step, refused, unreachable
from tests.acceptance.classify.clients import Limit, catch_fault, google_api, hasty
from tests.servers.certificate import self_signed

pytestmark = pytest.mark.req("C-3")
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}


def aws(url: str, service: str = "s3") -> Any:
    once = Config(retries={"total_max_attempts": 1}, connect_timeout=Limit.seconds, read_timeout=Limit.seconds)
    return boto3.client(service, endpoint_url=url, config=once, **KEYS)


def s3_failure(status: int, code: str, **headers: str) -> Answer:
    return Answer(status, headers, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (s3_failure(503, "SlowDown"), Fault("throttled", status=503)),
        (s3_failure(503, "ServiceUnavailable"), Fault("transient", status=503)),
        (s3_failure(500, "InternalError"), Fault("transient", status=500)),
        (s3_failure(400, "RequestTimeout"), Fault("timeout", status=400)),
        (s3_failure(404, "NoSuchKey"), Fault("permanent", status=404)),
        (s3_failure(403, "AccessDenied"), Fault("permanent", status=403)),
        (s3_failure(412, "PreconditionFailed"), Fault("permanent", status=412)),
        (Answer(503, {"Retry-After": "3"}), Fault("throttled", 3.0, status=503)),
    ],
    ids=str,
)
def test_s3_errors_are_classified(answer: Answer, fault: Fault) -> None:
    with FaultServer(answer) as server:
        assert catch_fault(lambda: aws(server.url).get_object(Bucket="b", Key="k"))[1] == fault


def test_dynamodb_throttles_with_a_400() -> None:
    body = b'{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "slow"}'
    with FaultServer(Answer(400, {"content-type": "application/x-amz-json-1.0"}, body)) as server:
        call = aws(server.url, "dynamodb").get_item
        assert catch_fault(lambda: call(TableName="t", Key={"k": {"S": "1"}}))[1] == Fault("throttled", status=400)


@pytest.mark.req("C-10")
def test_connection_errors_of_botocore_are_transient() -> None:
    def get(url: str) -> Fault:
        def read() -> object:
            return aws(url).get_object(Bucket="b", Key="k")["Body"].read()

        return catch_fault(read)[1]

    with FaultServer("reset", "hang", Answer(body=b"half", trouble="cut")) as server:
        assert get(server.url) == Fault("transient")
        with hasty():
            assert get(server.url) == Fault("timeout")
        assert get(server.url) == Fault("transient")
    with refused() as url:
        assert get(url) == Fault("transient", sent=False)
    with unreachable() as url, hasty():
        assert get(url) == Fault("timeout", sent=False)


def test_parameters_rejected_by_botocore_are_permanent() -> None:
    assert catch_fault(lambda: aws("http://127.0.0.1:1").get_object(Bucket="b"))[1] == Fault("permanent")


def test_a_failed_upload_is_classified_by_its_cause(tmp_path: Any) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with FaultServer(s3_failure(503, "SlowDown")) as server:
        fault = catch_fault(lambda: aws(server.url).upload_file(str(tmp_path / "file"), "b", "k"))[1]
        assert fault == Fault("throttled", status=503)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(s3_failure(503, "SlowDown"), "throttled"), (s3_failure(500, "InternalError"), "transient"), (403, "permanent")],
    ids=str,
)
def test_s3fs_errors_are_classified_by_the_botocore_error_behind_them(answer: Any, kind: str) -> None:
    import s3fs

    with FaultServer(answer) as server:
        files = s3fs.S3FileSystem(
            key="a",
            secret="b",
            endpoint_url=server.url,
            config_kwargs={"retries": {"total_max_attempts": 1}},
            skip_instance_cache=True,
        )
        files.retries = 1
        error, fault = catch_fault(lambda: files.ls("bucket"))
        assert isinstance(error, OSError)
        assert fault.kind == kind


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (503, Fault("transient", status=503)),
        (429, Fault("throttled", status=429)),
        (403, Fault("permanent")),
        (s3_failure(503, "SlowDown"), Fault("throttled")),
        ("reset", Fault("transient")),
    ],
    ids=str,
)
def test_pyarrow_errors_are_classified_by_their_message(step: Step, fault: Fault) -> None:
    from pyarrow import fs

    with FaultServer(step) as server:
        files = fs.S3FileSystem(
            access_key="a",
            secret_key="b",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{server.port}",
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        )
        error, found = catch_fault(lambda: files.get_file_info(fs.FileSelector("bucket")))
        assert type(error) is OSError
        assert found == fault


def azure(url: str) -> object:
    transport = RequestsTransport(connection_timeout=Limit.seconds, read_timeout=Limit.seconds)
    with PipelineClient[Any, Any](url, policies=[], transport=transport) as client:
        response = client.send_request(HttpRequest("GET", url))
        response.raise_for_status()
        return response.read()


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer(503), Fault("transient", status=503)),
        (Answer(429, {"x-ms-retry-after-ms": "1500"}), Fault("throttled", 1.5, status=429)),
        (Answer(429, {"retry-after": "2"}), Fault("throttled", 2.0, status=429)),
        (Answer(401), Fault("permanent", status=401)),
        (Answer(404), Fault("permanent", status=404)),
        (Answer(409), Fault("permanent", status=409)),
        (Answer(trouble="reset"), Fault("transient")),
        (Answer(trouble="hang"), Fault("timeout")),
        (Answer(body=b"half", trouble="cut"), Fault("transient")),
    ],
    ids=str,
)
def test_azure_core_errors_are_classified(answer: Answer, fault: Fault) -> None:
    with FaultServer(answer) as server, hasty(fault.kind == "timeout"):
        assert catch_fault(lambda: azure(server.url))[1] == fault


@pytest.mark.req("C-10")
def test_azure_connection_errors_mean_that_nothing_was_sent() -> None:
    with refused() as url:
        assert catch_fault(lambda: azure(url))[1] == Fault("transient", sent=False)
    with unreachable() as url, hasty():
        assert catch_fault(lambda: azure(url))[1] == Fault("timeout", sent=False)
    assert catch_fault(lambda: azure("http://no-such-host.invalid"))[1] == Fault("transient", sent=False)


def test_server_busy_of_azure_storage_is_throttling() -> None:
    blob: Any = BlobClient
    with (
        FaultServer(Answer(503, {"x-ms-error-code": "ServerBusy"})) as server,
        blob(f"{server.url}/account", container_name="some", blob_name="b", retry_total=0) as client,
    ):
        assert catch_fault(client.get_blob_properties)[1] == Fault("throttled", status=503)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer(503), Fault("transient", status=503)),
        (Answer(429, {"Retry-After": "7"}), Fault("throttled", 7.0, status=429)),
        (Answer(409), Fault("permanent", status=409)),
        (Answer(404), Fault("permanent", status=404)),
        (Answer(504), Fault("timeout", status=504)),
    ],
    ids=str,
)
def test_google_rest_errors_are_classified(answer: Answer, fault: Fault) -> None:
    exceptions, _ = google_api()

    def call() -> None:
        raise exceptions.from_http_response(requests.get(server.url))

    with FaultServer(answer) as server:
        assert catch_fault(call)[1] == fault


@pytest.mark.req("R-6")
def test_retry_info_in_google_details_sets_the_wait() -> None:
    exceptions, _ = google_api()
    info = importlib.import_module("google.rpc.error_details_pb2").RetryInfo()  # it has no type stubs
    info.retry_delay.FromMilliseconds(2500)

    def call() -> None:
        raise exceptions.ResourceExhausted("slow down", details=[info])

    assert catch_fault(call)[1] == Fault("throttled", 2.5, status=429)


def obstore_get(url: str, retries: int = 0) -> object:
    limits: Any = {"allow_http": True, "read_timeout": timedelta(seconds=Limit.seconds)}
    access: Any = {"endpoint": url, "region": "us-east-1", "access_key_id": "k", "secret_access_key": "s"}
    backoff: Any = {"init_backoff": timedelta(seconds=0.01), "max_backoff": timedelta(seconds=0.02), "base": 2}
    store = S3Store("b", client_options=limits, retry_config={"max_retries": retries, "backoff": backoff}, **access)
    return obstore.get(store, "k").bytes()


HEAD = {"ETag": '"e"', "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}


@pytest.mark.req("C-7", "X-6")
@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (503, Fault("transient", status=503)),
        (s3_failure(503, "SlowDown"), Fault("throttled", status=503)),
        (429, Fault("throttled", status=429)),
        ("reset", Fault("transient")),
        ("hang", Fault("timeout")),
    ],
)
def test_obstore_errors_are_classified_and_its_retries_detected(step: Step, fault: Fault, retries: int) -> None:
    with FaultServer(step) as server, hasty(step == "hang"):
        assert catch_fault(lambda: obstore_get(server.url, retries))[1] == replace(fault, spent="obstore" if retries else None)
        assert server.count == 1 + retries


@pytest.mark.parametrize("step", [400, 401, 403, 404])
def test_obstore_errors_of_the_caller_are_permanent(step: int) -> None:
    with FaultServer(step) as server:
        assert catch_fault(lambda: obstore_get(server.url, 1))[1].kind == "permanent"
        assert server.count == 1


def test_obstore_connection_errors_mean_that_nothing_was_sent() -> None:
    with refused() as url:
        assert catch_fault(lambda: obstore_get(url))[1] == Fault("transient", sent=False)
    assert catch_fault(lambda: obstore_get("http://no-such-host.invalid"))[1] == Fault("transient", sent=False)
    store = S3Store("b", endpoint="http://127.0.0.1:1", region="us-east-1", access_key_id="k", secret_access_key="s")
    assert catch_fault(lambda: obstore.get(store, "k"))[1] == Fault("permanent", sent=False)


def test_an_untrusted_certificate_of_obstore_is_permanent(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path))
    with FaultServer(200, tls=context) as server:
        assert catch_fault(lambda: obstore_get(server.url.replace("http:", "https:")))[1] == Fault("permanent", sent=False)


def test_a_body_of_obstore_that_breaks_is_transient() -> None:
    with FaultServer(Answer(200, HEAD, b"x" * 100, trouble="cut")) as server:
        assert catch_fault(lambda: obstore_get(server.url))[1].kind == "transient"
