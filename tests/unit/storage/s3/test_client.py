"""S3Client: the policy in the options of s3fs, timestamps, and the timeout of sending."""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.utils import parse_timestamp

from redrive import RetryPolicy
from redrive.storage.s3.client import SendOnceSession, merge_retry_policy, read_timestamp

POLICY = RetryPolicy(max_attempts=4, timeout=9)


@pytest.mark.req("S-4")
def test_the_policy_is_merged_into_the_options() -> None:
    arguments: dict[str, Any] = {
        "config_kwargs": {"read_timeout": 7, "retries": {"mode": "adaptive", "max_attempts": 9}},
        "anon": True,
    }
    options = merge_retry_policy(arguments, POLICY)
    assert options["config_kwargs"] == {"read_timeout": 7, "retries": {"total_max_attempts": 4, "mode": "standard"}}
    assert options["anon"] is True
    assert arguments["config_kwargs"]["retries"] == {"mode": "adaptive", "max_attempts": 9}, "the argument is not changed"


@pytest.mark.req("S-4")
def test_replaced_and_dropped_settings_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive")
    merge_retry_policy({"config_kwargs": {"retries": {"mode": "legacy"}}}, POLICY)
    gives_way, dropped = (record.getMessage() for record in caplog.records)
    assert gives_way == f"config_kwargs['retries'] = {{'mode': 'legacy'}} gives way to {POLICY!r}"
    assert dropped == f"botocore has no place for backoff_base, backoff_max, jitter, timeout of {POLICY!r}"


@pytest.mark.req("S-1")
def test_options_are_unchanged_without_a_policy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "redrive")
    arguments = {"config_kwargs": {"retries": {"mode": "legacy"}}, "client_kwargs": {"verify": False}}
    assert merge_retry_policy(arguments, None) == arguments
    assert not caplog.records


def test_a_botocore_config_object_is_rejected() -> None:
    with pytest.raises(TypeError, match="give its arguments as config_kwargs"):
        merge_retry_policy({"client_kwargs": {"config": object()}}, POLICY)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-16T08:20:36.123Z", datetime(2026, 11, 16, 8, 20, 36, 123_000, tzinfo=timezone.utc)),
        ("2026-11-16T08:20:36Z", datetime(2026, 11, 16, 8, 20, 36, tzinfo=timezone.utc)),
        ("Mon, 16 Nov 2026 08:20:36 GMT", datetime(2026, 11, 16, 8, 20, 36, tzinfo=timezone.utc)),
        ("20261116T082036Z", datetime(2026, 11, 16, 8, 20, 36, tzinfo=timezone.utc)),
        (5, datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc)),
    ],
)
def test_timestamps_equal_those_of_botocore(text: str | int, at: datetime) -> None:
    assert read_timestamp(text) == at == parse_timestamp(text)
    assert read_timestamp(text).utcoffset() == timedelta(0)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such limit")
def test_sending_has_a_timeout() -> None:
    """The read timeout of aiohttp begins when the request is sent."""

    async def limit() -> int:
        async with SendOnceSession(timeout=(5, 7)) as session:
            connector = (await session._get_session(None)).connector
            with connector._socket_factory((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as created:
                milliseconds: int = created.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                return milliseconds

    assert asyncio.run(limit()) == 7000
