"""The numbers of a send buffer from the environment."""

from __future__ import annotations

import pytest

from redrive import RetryPolicy
from redrive.batch import SendBuffer
from redrive.batch.buffer.environment import VARIABLES, Numbers, numbers
from redrive.engine.layer import Layer

pytestmark = pytest.mark.req("G-5")


async def send(batch: list[int]) -> None: ...


def test_the_defaults_are_the_documents() -> None:
    assert numbers({}) == Numbers(retries=3, backoff=0.1, timeout=30, max_batch_size=50, flush_interval=0.1)


def test_all_of_them() -> None:
    environ = {
        "REDRIVE_SIGNAL_SEND_RETRIES": "0",
        "REDRIVE_SIGNAL_SEND_BACKOFF_MS": "2.5",
        "REDRIVE_GRPC_TIMEOUT": "60",
        "REDRIVE_SIGNAL_MAX_BATCH_SIZE": " 7 ",
        "REDRIVE_SIGNAL_FLUSH_INTERVAL": "0",
        "HOME": "/",
    }
    assert numbers(environ) == Numbers(0, 0.0025, 60, 7, 0)


@pytest.mark.parametrize("variable", VARIABLES.values())
@pytest.mark.parametrize("text", ["", "many", "-1", "nan", "inf", "1e400", "0x10", "1,5"])
def test_a_bad_value_names_the_variable(variable: str, text: str) -> None:
    with pytest.raises(ValueError, match=variable):
        SendBuffer.from_env(send, {variable: text})


@pytest.mark.parametrize(
    ("variable", "text"),
    [("REDRIVE_GRPC_TIMEOUT", "0"), ("REDRIVE_SIGNAL_MAX_BATCH_SIZE", "0"), ("REDRIVE_SIGNAL_MAX_BATCH_SIZE", "2.5")],
)
def test_nothing_is_no_size_and_no_time(variable: str, text: str) -> None:
    with pytest.raises(ValueError, match=variable):
        SendBuffer.from_env(send, {variable: text})


def test_what_a_buffer_makes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("REDRIVE_SIGNAL_SEND_RETRIES", "1")
    monkeypatch.setenv("REDRIVE_SIGNAL_SEND_BACKOFF_MS", "200")
    layer = Layer.of(SendBuffer.from_env(send, max_waiting=5, codes=["ABORTED"]).__redrive__)
    assert (layer.max_attempts, layer.each, layer.on) == (2, 30, ("ABORTED",))
    assert layer.wait(1) == pytest.approx((0.2, 0.3))


@pytest.mark.req("G-3")
def test_the_waits_without_any() -> None:
    retry = SendBuffer(send).__redrive__
    layer = Layer.of(retry)
    assert layer.on == ("UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED")
    assert layer.max_attempts == 4
    assert [layer.wait(attempt) for attempt in (1, 2, 3)] == [pytest.approx((base, 1.5 * base)) for base in (0.1, 0.2, 0.4)]
    assert layer.each == 30
    assert retry.policy == RetryPolicy(4, 0.1, 10.0, 0.0)
