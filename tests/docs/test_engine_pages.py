"""The examples of the pages on engines, on real servers. A page names a server on localhost: the run has another one."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.servers.kafka import MockCluster
from tests.servers.nats_admin import NatsAdmin
from tests.servers.rabbit_admin import RabbitAdmin

PAGES = Path(__file__).parents[2] / "docs" / "how-to" / "engines"


def run_blocks(page: str, address: str, server: str, folder: Path) -> dict[str, Any]:
    """Run the Python blocks of a page in one namespace, and return its names."""
    text = (PAGES / page).read_text(encoding="utf-8").replace(address, server)
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block.replace("sqlite:///", f"sqlite:///{folder}/"), names)
    return names


def handle_one(names: dict[str, Any]) -> list[Any]:
    """Run a worker of the page's app until a handler has noted something in `seen`."""
    end = time.monotonic() + 30
    with names["app"] as app, app.worker(threads=1):
        while not names["seen"] and time.monotonic() < end:
            time.sleep(0.01)
    seen: list[Any] = names["seen"]
    return seen


@pytest.mark.req("E-4")
def test_the_page_of_rabbitmq(rabbitmq: dict[str, Any], tmp_path: Path) -> None:
    with RabbitAdmin(rabbitmq["url"]) as admin:
        admin.declare("orders")
        try:
            names = run_blocks("rabbitmq.md", "amqp://localhost", rabbitmq["url"], tmp_path)
            assert handle_one(names) == [("p-1", {"order": 7})]
        finally:
            admin.delete("orders", "orders.dead")


@pytest.mark.req("E-2")
def test_the_page_of_nats(nats_url: str, tmp_path: Path) -> None:
    with NatsAdmin(nats_url) as admin:
        admin.create_stream("orders")
        try:
            names = run_blocks("nats.md", "nats://localhost:4222", nats_url, tmp_path)
            assert handle_one(names) == [("p-1", {"order": 7})]
        finally:
            admin.delete_stream("orders")


@pytest.mark.req("E-5")
def test_the_page_of_kafka(tmp_path: Path) -> None:
    with MockCluster() as cluster:
        cluster.create("orders", 6)
        names = run_blocks("kafka.md", "localhost:9092", cluster.address, tmp_path)
        assert handle_one(names) == [("p-1", {"order": 7}, "customer-7")]
