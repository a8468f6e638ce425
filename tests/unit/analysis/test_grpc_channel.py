"""The retries of a channel, read from its options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.analysis.grpc import NO_RETRIES, ChannelRetries, channel_retries, is_channel_options, path
from redrive.analysis.layer import Layer
from redrive.grpc import channel_options

pytestmark = pytest.mark.req("G-7")


def config(*methods: dict[str, Any]) -> list[tuple[str, Any]]:
    return [("grpc.service_config", json.dumps({"methodConfig": list(methods)}))]


POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.05s",
    "maxBackoff": "1s",
    "backoffMultiplier": 3,
    "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"],
}


def test_the_default_options_are_read() -> None:
    assert channel_retries(channel_options()) == ChannelRetries(5, 0.1, 10.0, 2.0, ("UNAVAILABLE", "RESOURCE_EXHAUSTED"))


def test_a_handwritten_service_config_is_read() -> None:
    options = [*config({"name": [{}], "retryPolicy": POLICY}), ("grpc.keepalive_time_ms", 60_000)]
    found = channel_retries(options)
    assert found == ChannelRetries(4, 0.05, 1.0, 3.0, ("UNAVAILABLE", "ABORTED"))
    assert [found.wait(attempt, 0.5) for attempt in (1, 2, 3, 4, 10_000)] == pytest.approx([0.05, 0.15, 0.45, 1, 1])
    assert (found.wait(4, 0.0), found.wait(4, 1.0)) == pytest.approx((0.8, 1.2)), "grpcio spreads by a fifth"


@pytest.mark.parametrize(
    "options",
    [
        [],
        [("grpc.keepalive_time_ms", 1)],
        [("grpc.enable_retries", 0), *config({"name": [{}], "retryPolicy": POLICY})],
        config({"name": [{}], "timeout": "3s"}),
        config(),
        channel_options(RetryPolicy.disabled()),
    ],
    ids=str,
)
def test_a_channel_without_retries_is_read(options: list[tuple[str, Any]]) -> None:
    assert channel_retries(options) == NO_RETRIES


def test_more_than_five_attempts_count_as_five() -> None:
    assert channel_retries(config({"name": [{}], "retryPolicy": {**POLICY, "maxAttempts": 9}})).max_attempts == 5


@pytest.mark.parametrize("text", ["{not json", "[]", "5", json.dumps({"methodConfig": [{"retryPolicy": {"maxAttempts": 3}}]})])
def test_a_config_that_grpcio_rejects_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="every call would fail"):
        channel_retries([("grpc.service_config", text)])


def test_values_that_are_not_channel_options_are_rejected() -> None:
    with pytest.raises(TypeError, match="pairs of a name and a value"):
        channel_retries(["grpc.service_config"])  # type: ignore[list-item]
    assert not is_channel_options([])
    assert not is_channel_options([("a", 1)])
    assert not is_channel_options("grpc.")
    assert not is_channel_options([("grpc.a", 1, 2)])
    assert is_channel_options((("grpc.a", 1), ("other", 2)))


def test_the_most_specific_method_name_applies() -> None:
    """The most specific name applies: that of the method, of its service, or of all."""
    other = {**POLICY, "maxAttempts": 2, "retryableStatusCodes": ["INTERNAL"]}
    options = config(
        {"name": [{}], "timeout": "1s"},
        {"name": [{"service": "shop.Orders"}], "retryPolicy": POLICY},
        {"name": [{"service": "shop.Orders", "method": "Pay"}, {"service": "shop.Cart", "method": "Add"}], "retryPolicy": other},
    )
    assert channel_retries(options).codes == ("UNAVAILABLE", "ABORTED", "INTERNAL")
    assert channel_retries(path(options, "/shop.Orders/Get")).codes == ("UNAVAILABLE", "ABORTED")
    assert channel_retries(path(options, "shop.Orders/Pay")).codes == ("INTERNAL",)
    assert channel_retries(path(options, "/shop.Cart/Add")).codes == ("INTERNAL",)
    assert channel_retries(path(options, "/shop.Cart/Clear")) == NO_RETRIES
    assert channel_retries(path([("grpc.a", 1)], "/shop.Cart/Clear")) == NO_RETRIES
    with pytest.raises(ValueError, match="/package.Service/Method"):
        path(options, "shop.Orders")


def test_channel_options_become_a_layer() -> None:
    layer = Layer.of_channel(channel_options(RetryPolicy(3, 0.5, 2, 1)))
    assert (layer.name, layer.by, layer.max_attempts, layer.on) == ("channel", "grpc", 3, ("UNAVAILABLE", "RESOURCE_EXHAUSTED"))
    assert layer.wait(1) == pytest.approx((0.4, 0.6))
    assert Layer.of_channel([("grpc.enable_retries", 0)]).max_attempts == 1
