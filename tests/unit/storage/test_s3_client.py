"""What s3fs is told: the policy, merged into what the user has said."""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.utils import parse_timestamp

from redrive import RetryPolicy
from redrive.storage.s3_client import told
from redrive.storage.s3_session import SendsOnce, moment

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
def test_times_are_those_of_botocore(text: str | int, at: datetime) -> None:
    assert moment(text) == at == parse_timestamp(text)
    assert moment(text).utcoffset() == timedelta(0)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no such limit")
def test_a_server_that_takes_nothing_any_more_is_not_waited_for() -> None:
    """The read time-out of aiohttp begins when all is sent."""

    async def limit() -> int:
        async with SendsOnce(timeout=(5, 7)) as session:
            connector = (await session._get_session(None)).connector
            with connector._socket_factory((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
                found: int = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                return found

    assert asyncio.run(limit()) == 7000
