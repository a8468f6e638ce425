"""Kafka: workers that join and are killed, and brokers that are stopped. Nothing is lost, and each event is handled once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.engines.kafka_drills import PARTITIONS, TOPIC, kill_workers_of, stop_brokers
from tests.servers.kafka import MockCluster
from tests.zygote import Zygote

from .market import Market
from .stalls import KafkaStall

IDS = tuple(f"p-{n:03}" for n in range(30))


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as started:
        started.create(TOPIC, PARTITIONS)
        yield started


@pytest.mark.req("E-5", "M-1")
@pytest.mark.parametrize("point", ["read.after", "ack.before"])
def test_a_consumer_is_killed_between_read_and_commit(zygote: Zygote, cluster: MockCluster, tmp_path: Path, point: str) -> None:
    market = Market(zygote, f"sqlite:///{tmp_path}/ledger.db", KafkaStall(cluster.address, TOPIC), tmp_path)
    market.check_crash(*IDS, at=f"{point}:1")


@pytest.mark.req("E-5")
def test_workers_join_and_are_killed_under_load(zygote: Zygote, cluster: MockCluster, tmp_path: Path) -> None:
    assert kill_workers_of(cluster, zygote, tmp_path, kills=2, messages=300).is_good


@pytest.mark.req("E-5", "M-7")
def test_all_brokers_are_stopped_and_started_again_under_load(tmp_path: Path) -> None:
    assert stop_brokers(tmp_path, stops=1, messages=300).is_good
