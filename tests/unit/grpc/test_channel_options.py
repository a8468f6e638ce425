"""`channel_options`: gRPC's own retries."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.grpc import channel_options

pytestmark = pytest.mark.req("G-1")


def policy_of(options: list[tuple[str, Any]]) -> dict[str, Any]:
    [method] = json.loads(dict(options)["grpc.service_config"])["methodConfig"]
    assert "timeout" not in method, "it fires early"
    found: dict[str, Any] = method["retryPolicy"]
    return found


def test_default_service_config() -> None:
    options = channel_options()
    assert policy_of(options) == {
        "maxAttempts": 5,
        "initialBackoff": "0.1s",
        "maxBackoff": "10s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    assert dict(options)["grpc.enable_retries"] == 1
    assert dict(options)["grpc.per_rpc_retry_buffer_size"] > 4 * 1024 * 1024


def test_one_attempt_switches_retries_off() -> None:
    assert channel_options(RetryPolicy.disabled()) == [("grpc.enable_retries", 0)]


def test_more_than_five_attempts_are_rejected() -> None:
    with pytest.raises(ValueError, match="grpc makes 5 attempts at most, in silence; max_attempts=6"):
        channel_options(RetryPolicy(max_attempts=6))


@pytest.mark.parametrize(("base", "most"), [(0.0, 10.0), (0.001, 10.0), (0.009, 0.009), (1.0, 0.0)])
def test_waits_are_at_least_ten_milliseconds(base: float, most: float) -> None:
    found = policy_of(channel_options(RetryPolicy(3, base, most)))
    assert float(found["initialBackoff"].removesuffix("s")) >= 0.01
    assert float(found["maxBackoff"].removesuffix("s")) >= 0.01


def test_services_and_methods_are_configured() -> None:
    [method] = json.loads(dict(channel_options(services=["shop.Orders", "shop.Cart/Get"]))["grpc.service_config"])["methodConfig"]
    assert method["name"] == [{"service": "shop.Orders"}, {"service": "shop.Cart", "method": "Get"}]
    [method] = json.loads(dict(channel_options(services="shop.Orders"))["grpc.service_config"])["methodConfig"]
    assert method["name"] == [{"service": "shop.Orders"}]


def test_codes_are_configured() -> None:
    assert policy_of(channel_options(codes=["DEADLINE_EXCEEDED"]))["retryableStatusCodes"] == ["DEADLINE_EXCEEDED"]
    with pytest.raises(ValueError, match="unknown: NOPE"):
        channel_options(codes=["NOPE"])
    with pytest.raises(ValueError, match="at least one"):
        channel_options(codes=[])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_bytes": 0}, "max_batch_bytes must be at least 1"),
        ({"max_batch_bytes": "4 MiB"}, "max_batch_bytes must be a whole number"),
        ({"services": []}, "services must be names"),
        ({"services": [5]}, "services must be names"),
    ],
    ids=str,
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        channel_options(**options)
    with pytest.raises(TypeError, match="a mapping takes a RetryPolicy"):
        channel_options(3)  # type: ignore[arg-type]


def test_options_do_not_load_grpcio() -> None:
    program = "import sys, redrive.grpc as g; g.retry(behind=g.channel_options()); assert 'grpc' not in sys.modules, 'loaded'"
    subprocess.run([sys.executable, "-c", program], check=True)
