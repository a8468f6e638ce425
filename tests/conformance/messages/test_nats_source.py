"""NatsStream passes the suite of sources."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import unquote

import pytest

from redrive.messages import NatsStream
from redrive.testing import SourceConformance
from tests.servers.nats_admin import NatsAdmin


@pytest.mark.req("E-1", "E-2")
class TestNatsStream(SourceConformance):
    @pytest.fixture
    def admin(self, nats_url: str) -> Iterator[NatsAdmin]:
        with NatsAdmin(nats_url) as admin:
            yield admin

    @pytest.fixture
    def source(self, nats_url: str, admin: NatsAdmin) -> NatsStream:
        stream = f"orders-{secrets.token_hex(4)}"
        admin.create_stream(stream)
        return NatsStream(nats_url, stream, consumer="shop")

    @pytest.fixture
    def send(self, admin: NatsAdmin, source: NatsStream) -> Callable[[Sequence[tuple[bytes, Mapping[str, str]]]], None]:
        return lambda messages: admin.send(f"{source.stream}.paid", messages)

    @pytest.fixture
    def announced(self, admin: NatsAdmin, source: NatsStream) -> Callable[[], Sequence[tuple[Mapping[str, str], bytes | None]]]:
        def read() -> list[tuple[Mapping[str, str], bytes | None]]:
            letters = admin.messages(f"dead-{source.stream}")
            return [({name: unquote(value) for name, value in headers.items()}, body) for headers, body in letters]

        return read
