"""What s3fs is told: the policy, merged into what the user has said."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redrive import RetryPolicy
from redrive.storage.s3_client import told

POLICY = RetryPolicy(max_attempts=4, timeout=9)


@pytest.mark.req("S-4")
def test_merged_into_what_the_user_gave() -> None:
    given: dict[str, Any] = {
        "config_kwargs": {"read_timeout": 7, "retries": {"mode": "adaptive", "max_attempts": 9}},
        "anon": True,
    }
    options = told(given, POLICY)
    assert options["config_kwargs"] == {"read_timeout": 7, "retries": {"total_max_attempts": 4, "mode": "standard"}}
    assert options["anon"] is True
    assert given["config_kwargs"]["retries"] == {"mode": "adaptive", "max_attempts": 9}, "the user's own is not changed"


@pytest.mark.req("S-4")
def test_what_is_dropped_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive")
    told({"config_kwargs": {"retries": {"mode": "legacy"}}}, POLICY)
    gives_way, dropped = (record.getMessage() for record in caplog.records)
    assert gives_way == f"config_kwargs['retries'] = {{'mode': 'legacy'}} gives way to {POLICY!r}"
    assert dropped == f"botocore has no place for backoff_base, backoff_max, jitter, timeout of {POLICY!r}"


@pytest.mark.req("S-1")
def test_no_policy_leaves_everything_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive")
    given = {"config_kwargs": {"retries": {"mode": "legacy"}}, "client_kwargs": {"verify": False}}
    assert told(given, None) == given
    assert not caplog.records


def test_a_finished_config_is_refused() -> None:
    with pytest.raises(TypeError, match="give its arguments as config_kwargs"):
        told({"client_kwargs": {"config": object()}}, POLICY)
