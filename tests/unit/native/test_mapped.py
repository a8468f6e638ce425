"""What a mapping says of itself, without any client."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from redrive import RetryPolicy, native
from redrive.native.clients import CLIENTS
from redrive.native.mapped import FIELDS, Mapped


@pytest.mark.req("R-10")
def test_what_is_dropped_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive.native")
    assert native.httpx(RetryPolicy(4, timeout=9)) == Mapped({"retries": 3}, ("backoff_base", "backoff_max", "jitter", "timeout"))
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert record.getMessage().startswith("httpx has no place for backoff_base, backoff_max, jitter, timeout of RetryPolicy(")


def test_nothing_is_dropped_of_one_attempt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive.native")
    for client in CLIENTS.values():
        assert client.dropped(RetryPolicy.disabled()) == ()
    assert native.httpx(RetryPolicy.disabled()).dropped == ()
    assert not caplog.records


def test_a_limit_that_was_not_set_is_not_dropped() -> None:
    assert "timeout" not in native.httpx(RetryPolicy()).dropped


@pytest.mark.parametrize("name", CLIENTS)
def test_every_word_can_be_said(name: str) -> None:
    client = CLIENTS[name]
    for policy in (RetryPolicy(), RetryPolicy(2, 0, 0, 0, 5), RetryPolicy.disabled()):
        for field in FIELDS:
            said = client.says(field, policy)
            assert (said is None) == (field not in client.words)
            assert said is None or "{backoff" not in said
        for attempt in (1, 2, 30, 100_000):
            least, most = client.waits(policy, attempt)
            assert 0 <= least <= most


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(TypeError, match="a mapping takes a RetryPolicy, not int: 3"):
        native.httpx(3)  # type: ignore[arg-type]


def test_importing_brings_no_client() -> None:
    clients = ("azure", "botocore", "grpc", "pyarrow", "tenacity", "urllib3")
    program = f"import sys, redrive.native; print([name for name in {clients} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
