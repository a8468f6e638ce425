"""obstore: attempts and waits follow the policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import S3Store

from redrive import RetryPolicy, native
from redrive.native.object_store import OBSTORE
from redrive.testing import Answer, FaultServer
from redrive.testing.http_server import Step
from tests.acceptance.native.wire import QUICK, assert_waits

pytestmark = pytest.mark.req("R-10", "X-6")


def store(server: FaultServer, policy: RetryPolicy) -> S3Store:
    limits: Any = {"allow_http": True, "read_timeout": timedelta(seconds=0.2)}
    return S3Store(
        "box",
        endpoint=server.url,
        region="us-east-1",
        access_key_id="k",
        secret_access_key="s",
        disable_bulk_delete=True,
        client_options=limits,
        retry_config=native.obstore(policy).value,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("attempts", [1, 2, 5])
@pytest.mark.parametrize("trouble", [503, 429, 408, "reset", "hang"])
def test_attempts_and_waits_follow_the_policy(trouble: Step, attempts: int) -> None:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0.02, backoff_max=0.05, jitter=0.01)
    with FaultServer(trouble) as server:
        with pytest.raises(GenericError):
            obstore.get(store(server, policy), "name")
        assert server.count == attempts
        if attempts > 1 and trouble == 503:
            assert_waits(server, OBSTORE, policy)


@pytest.mark.parametrize("trouble", ["reset", "hang"])
def test_deletes_and_conditional_writes_are_not_resent_as_the_notes_say(trouble: Step) -> None:
    with FaultServer(trouble) as server:
        box = store(server, QUICK)
        with pytest.raises(GenericError):
            obstore.put(box, "name", b"x", mode="create")
        with pytest.raises(GenericError):
            obstore.delete(box, "name")
        assert server.count == 2
        with pytest.raises(GenericError):
            obstore.put(box, "name", b"x")
        assert server.count == 2 + 3
    assert any("does not resend deletes" in note for note in OBSTORE.notes)


def test_retry_after_is_ignored_as_the_notes_say() -> None:
    with FaultServer(Answer(503, {"Retry-After": "30"}), 503) as server:
        with pytest.raises(GenericError):
            obstore.get(store(server, QUICK), "name")
        assert server.count == 3
        assert server.waits[0] < 30


@pytest.mark.parametrize("policy", [RetryPolicy(2, 0, 0, 0), RetryPolicy(2, 5, 0.01, 0), RetryPolicy(2, 0.01, 0.01, timeout=9)])
def test_a_policy_without_waits_or_with_a_small_maximum_is_accepted(policy: RetryPolicy) -> None:
    with FaultServer(503) as server:
        with pytest.raises(GenericError):
            obstore.get(store(server, policy), "name")
        assert server.count == 2


def test_a_timeout_limits_the_retries() -> None:
    policy = RetryPolicy(max_attempts=50, backoff_base=0.05, backoff_max=0.05, jitter=0, timeout=0.2)
    with FaultServer(503) as server:
        with pytest.raises(GenericError):
            obstore.get(store(server, policy), "name")
        assert 1 < server.count < 50
    assert native.obstore(RetryPolicy(timeout=5000)).value["retry_timeout"] == timedelta(minutes=10)


def test_only_the_jitter_is_dropped() -> None:
    assert native.obstore(RetryPolicy(timeout=5)).dropped == ("jitter",)
    assert native.obstore(RetryPolicy.disabled()).dropped == ()
