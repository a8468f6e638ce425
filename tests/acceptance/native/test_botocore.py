"""botocore: attempts follow the policy, in any environment."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from redrive import RetryPolicy, native
from redrive.native.aws import BOTOCORE
from redrive.testing import Answer, FaultServer
from tests.acceptance.native.wire import assert_waits

pytestmark = pytest.mark.req("R-10")
OWN = Config(signature_version="s3v4", s3={"addressing_style": "path"}, read_timeout=2)


def client(server: FaultServer, config: Config | None) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=OWN.merge(config) if config is not None else OWN,
    )


@pytest.mark.parametrize("attempts", [1, 2, 4])
def test_attempts_follow_the_policy(attempts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with FaultServer(503) as server:
        with pytest.raises(ClientError):
            client(server, native.botocore(RetryPolicy(max_attempts=attempts)).value).head_object(Bucket="b", Key="k")
        assert server.count == attempts


def test_max_attempts_of_botocore_counts_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max_attempts` counts retries, not attempts. This is why the mapping does not use it."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with FaultServer(503) as server:
        with pytest.raises(ClientError):
            client(server, Config(retries={"max_attempts": 3, "mode": "standard"})).head_object(Bucket="b", Key="k")
        assert server.count == 4


@pytest.mark.parametrize("variable", ["AWS_RETRY_MODE=legacy", "AWS_MAX_ATTEMPTS=7", "AWS_NEW_RETRIES_2026=true"])
def test_the_environment_does_not_change_the_attempts(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*variable.split("="))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with FaultServer("reset") as server:
        with pytest.raises(HTTPClientError):
            client(server, native.botocore(RetryPolicy(max_attempts=3)).value).head_object(Bucket="b", Key="k")
        assert server.count == 3


def test_botocore_uses_its_own_waits_and_ignores_retry_after() -> None:
    policy = RetryPolicy(max_attempts=2, backoff_base=9, backoff_max=9, jitter=0, timeout=60)
    with FaultServer(Answer(503, {"Retry-After": "5"}), 200) as server:
        config, dropped = native.botocore(policy)
        client(server, config).head_object(Bucket="b", Key="k")
        assert_waits(server, BOTOCORE, policy)
    assert dropped == ("backoff_base", "backoff_max", "jitter", "timeout")
