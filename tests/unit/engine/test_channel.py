"""What a channel's options make it try again, read from the options themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.engine.channel import OFF, Channel, are_options, channel, path
from redrive.engine.layer import Layer
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


def test_the_default_options() -> None:
    assert channel(channel_options()) == Channel(5, 0.1, 10.0, 2.0, ("UNAVAILABLE", "RESOURCE_EXHAUSTED"))


def test_a_service_config_by_hand() -> None:
    options = [*config({"name": [{}], "retryPolicy": POLICY}), ("grpc.keepalive_time_ms", 60_000)]
    found = channel(options)
    assert found == Channel(4, 0.05, 1.0, 3.0, ("UNAVAILABLE", "ABORTED"))
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
def test_no_retries(options: list[tuple[str, Any]]) -> None:
    assert channel(options) == OFF


def test_more_than_five_are_five() -> None:
    assert channel(config({"name": [{}], "retryPolicy": {**POLICY, "maxAttempts": 9}})).max_attempts == 5


@pytest.mark.parametrize("text", ["{not json", "[]", "5", json.dumps({"methodConfig": [{"retryPolicy": {"maxAttempts": 3}}]})])
def test_what_grpcio_would_choke_on_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="every call would fail"):
        channel([("grpc.service_config", text)])


def test_not_options_at_all() -> None:
    with pytest.raises(TypeError, match="pairs of a name and a value"):
        channel(["grpc.service_config"])  # type: ignore[list-item]
    assert not are_options([])
    assert not are_options([("a", 1)])
    assert not are_options("grpc.")
    assert not are_options([("grpc.a", 1, 2)])
    assert are_options((("grpc.a", 1), ("other", 2)))


def test_one_method_of_several() -> None:
    """The nearest name is in force: the method's own, its service's, everybody's."""
    other = {**POLICY, "maxAttempts": 2, "retryableStatusCodes": ["INTERNAL"]}
    options = config(
        {"name": [{}], "timeout": "1s"},
        {"name": [{"service": "shop.Orders"}], "retryPolicy": POLICY},
        {"name": [{"service": "shop.Orders", "method": "Pay"}, {"service": "shop.Cart", "method": "Add"}], "retryPolicy": other},
    )
    assert channel(options).codes == ("UNAVAILABLE", "ABORTED", "INTERNAL")
    assert channel(path(options, "/shop.Orders/Get")).codes == ("UNAVAILABLE", "ABORTED")
    assert channel(path(options, "shop.Orders/Pay")).codes == ("INTERNAL",)
    assert channel(path(options, "/shop.Cart/Add")).codes == ("INTERNAL",)
    assert channel(path(options, "/shop.Cart/Clear")) == OFF
    assert channel(path([("grpc.a", 1)], "/shop.Cart/Clear")) == OFF
    with pytest.raises(ValueError, match="/package.Service/Method"):
        path(options, "shop.Orders")


def test_as_a_layer() -> None:
    layer = Layer.of_channel(channel_options(RetryPolicy(3, 0.5, 2, 1)))
    assert (layer.name, layer.by, layer.max_attempts, layer.on) == ("channel", "grpc", 3, ("UNAVAILABLE", "RESOURCE_EXHAUSTED"))
    assert layer.wait(1) == pytest.approx((0.4, 0.6))
    assert Layer.of_channel([("grpc.enable_retries", 0)]).max_attempts == 1
