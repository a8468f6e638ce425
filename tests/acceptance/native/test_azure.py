"""azure-storage: attempts and waits follow the policy."""

from __future__ import annotations

import pytest
from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import BlobClient

from redrive import RetryPolicy, native
from redrive.native.azure_storage import AZURE
from redrive.testing import Answer, FaultServer
from redrive.testing.http_server import Step
from tests.acceptance.native.wire import QUICK, assert_waits

pytestmark = pytest.mark.req("R-10")


def properties(server: FaultServer, policy: RetryPolicy) -> None:
    blob = BlobClient(server.url, "box", "name", **native.azure(policy).value, read_timeout=0.2)
    with blob:
        blob.get_blob_properties()


@pytest.mark.parametrize("attempts", [1, 2, 6])
@pytest.mark.parametrize("trouble", [503, "reset", "hang"])
def test_attempts_and_waits_follow_the_policy(trouble: Step, attempts: int) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.02, backoff_max=0.05, jitter=0.01)
    with FaultServer(trouble) as server:
        with pytest.raises(AzureError):
            properties(server, policy)
        assert server.count == attempts
        if attempts > 1 and trouble == 503:
            assert_waits(server, AZURE, policy)


def test_only_the_timeout_is_dropped() -> None:
    assert native.azure(QUICK).dropped == ()
    assert native.azure(RetryPolicy(timeout=5)).dropped == ("timeout",)


def test_retry_after_is_a_minimum() -> None:
    with FaultServer(Answer(503, {"Retry-After": "0.3"}), 200) as server:
        properties(server, QUICK)
        assert server.waits[0] >= 0.299


def test_429_is_not_retried_as_the_notes_say() -> None:
    with FaultServer(429) as server:
        with pytest.raises(HttpResponseError):
            properties(server, QUICK)
        assert server.count == 1
    assert "429 is not retried." in AZURE.notes
