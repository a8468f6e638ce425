"""RedisStream passes the suite of sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import redis

from redrive.messages import RedisStream, Source
from redrive.testing import SourceConformance


@pytest.mark.req("E-1")
class TestRedisStream(SourceConformance):
    @pytest.fixture
    def source(self, redis_url: str, stream: str) -> Source:
        return RedisStream(redis_url, stream, group="shop")

    @pytest.fixture
    def send(self, client: redis.Redis, stream: str) -> Callable[[Sequence[tuple[bytes, Mapping[str, str]]]], None]:
        def send(messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> None:
            for body, headers in messages:
                fields: dict[Any, Any] = {**headers, "payload": body}
                client.xadd(stream, fields)

        return send

    @pytest.fixture
    def announced(self, client: redis.Redis, stream: str) -> Callable[[], Sequence[tuple[Mapping[str, str], bytes | None]]]:
        def read() -> list[tuple[Mapping[str, str], bytes | None]]:
            entries: Any = client.xrange(f"{stream}.dead")
            letters: list[tuple[Mapping[str, str], bytes | None]] = []
            for _, fields in entries:
                payload = fields.pop(b"payload", None)
                letters.append(({name.decode(): value.decode() for name, value in fields.items()}, payload))
            return letters

        return read
