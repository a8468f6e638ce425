"""The options of a send buffer from environment variables."""

from __future__ import annotations

import pytest

from redrive import RetryPolicy
from redrive.analysis.layer import Layer
from redrive.batch import SendBuffer
from redrive.batch.buffer.send_buffer import VARIABLES, EnvironmentNumbers, read_environment

pytestmark = pytest.mark.req("G-5")


async def send(batch: list[int]) -> None: ...


def test_defaults() -> None:
    assert read_environment({}) == EnvironmentNumbers(retries=3, backoff=0.1, timeout=30, max_batch_size=50, flush_interval=0.1)


def test_all_variables() -> None:
    environ = {
        "REDRIVE_SIGNAL_SEND_RETRIES": "0",
        "REDRIVE_SIGNAL_SEND_BACKOFF_MS": "2.5",
        "REDRIVE_GRPC_TIMEOUT": "60",
        "REDRIVE_SIGNAL_MAX_BATCH_SIZE": " 7 ",
        "REDRIVE_SIGNAL_FLUSH_INTERVAL": "0",
        "HOME": "/",
    }
    assert read_environment(environ) == EnvironmentNumbers(0, 0.0025, 60, 7, 0)


@pytest.mark.parametrize("variable", VARIABLES.values())
@pytest.mark.parametrize("text", ["", "many", "-1", "nan", "inf", "1e400", "0x10", "1,5"])
def test_an_invalid_value_names_the_variable(variable: str, text: str) -> None:
    with pytest.raises(ValueError, match=variable):
        SendBuffer.from_env(send, {variable: text})


@pytest.mark.parametrize(
    ("variable", "text"),
    [("REDRIVE_GRPC_TIMEOUT", "0"), ("REDRIVE_SIGNAL_MAX_BATCH_SIZE", "0"), ("REDRIVE_SIGNAL_MAX_BATCH_SIZE", "2.5")],
)
def test_zero_is_not_a_size_or_a_timeout(variable: str, text: str) -> None:
    with pytest.raises(ValueError, match=variable):
        SendBuffer.from_env(send, {variable: text})


def test_buffer_options_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("REDRIVE_SIGNAL_SEND_RETRIES", "1")
    monkeypatch.setenv("REDRIVE_SIGNAL_SEND_BACKOFF_MS", "200")
    layer = Layer.of(SendBuffer.from_env(send, max_waiting=5, codes=["ABORTED"]).__redrive__)
    assert (layer.max_attempts, layer.attempt_limit, layer.on) == (2, 30, ("ABORTED",))
    assert layer.wait(1) == pytest.approx((0.2, 0.3))


@pytest.mark.req("G-3")
def test_default_waits() -> None:
    retry = SendBuffer(send).__redrive__
    layer = Layer.of(retry)
    assert layer.on == ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED")
    assert layer.max_attempts == 4
    assert [layer.wait(attempt) for attempt in (1, 2, 3)] == [pytest.approx((base, 1.5 * base)) for base in (0.1, 0.2, 0.4)]
    assert layer.attempt_limit == 30
    assert retry.policy == RetryPolicy(4, 0.1, 10.0, 0.0)
