"""RabbitQueue passes the suite of sources."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from redrive.messages import Consumer, RabbitQueue, Source
from redrive.testing import SourceConformance
from tests.servers.rabbit_admin import RabbitAdmin


@pytest.fixture
def queue(rabbit_admin: RabbitAdmin) -> Iterator[str]:
    """A new name of a queue. It is deleted after the test."""
    name = f"shop.events.{secrets.token_hex(4)}"
    yield name
    rabbit_admin.delete(name, f"{name}.dead")


@pytest.mark.req("E-4")
class TestRabbitQueue(SourceConformance):
    @pytest.fixture
    def source(self, rabbitmq: dict[str, Any], queue: str) -> Source:
        return RabbitQueue(rabbitmq["url"], queue)

    @pytest.fixture
    def send(self, rabbit_admin: RabbitAdmin, queue: str) -> Callable[[Sequence[tuple[bytes, Mapping[str, str]]]], None]:
        def send(messages: Sequence[tuple[bytes, Mapping[str, str]]]) -> None:
            rabbit_admin.declare_missing(queue)
            rabbit_admin.publish(queue, *((body, headers, {"message_id": secrets.token_hex(8)}) for body, headers in messages))

        return send

    @pytest.fixture
    def announced(self, rabbit_admin: RabbitAdmin, queue: str) -> Callable[[], Sequence[tuple[Mapping[str, str], bytes | None]]]:
        return lambda: [(properties.headers, body) for properties, body in rabbit_admin.drain(f"{queue}.dead")]

    def test_two_consumers_share_the_messages(  # type: ignore[override]
        self, rabbitmq: dict[str, Any], queue: str, send: Callable[..., None]
    ) -> None:
        with ExitStack() as stack:

            def connect() -> Consumer:
                consumer = RabbitQueue(rabbitmq["url"], queue, prefetch=3).connect()
                stack.callback(consumer.close)
                return consumer

            super().test_two_consumers_share_the_messages(connect, send)
