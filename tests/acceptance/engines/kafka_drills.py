"""Drills of Kafka on librdkafka's mock cluster: workers join and are killed, and brokers are stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from redrive import App, Event
from redrive.messages import KafkaTopic
from tests.acceptance.engines.outcome import Outcome, outcome_of, until
from tests.acceptance.messages.market import Market
from tests.acceptance.messages.stalls import KafkaStall
from tests.ledgers import sqlite_ledger
from tests.servers.kafka import QUICK, MockCluster, unread
from tests.zygote import Zygote

TOPIC, GROUP = "orders", "shop"
PARTITIONS = 6


def kill_workers(folder: Path, *, kills: int = 10, messages: int = 2000) -> Outcome:
    """Let workers join the group and kill them under load, so that it is rebalanced again and again."""
    with MockCluster() as cluster, Zygote() as zygote:
        cluster.create(TOPIC, PARTITIONS)
        return kill_workers_of(cluster, zygote, folder, kills, messages)


def kill_workers_of(cluster: MockCluster, zygote: Zygote, folder: Path, kills: int, messages: int) -> Outcome:
    began = time.monotonic()
    market = Market(zygote, f"sqlite:///{folder}/ledger.db", KafkaStall(cluster.address, TOPIC), folder)
    ids = [f"p-{number:05}" for number in range(messages)]
    workers = [market.hire(), market.hire()]
    for number in range(kills + 1):
        part = slice(messages * number // (kills + 1), messages * (number + 1) // (kills + 1))
        market.send(*ids[part], takes=0.005)
        if number < kills:
            workers.append(market.hire())
            handled = part.start + (part.stop - part.start) // 4
            market.until(lambda handled=handled: len(market.booked()) >= handled, f"{handled} are handled")  # type: ignore[misc]
            killed = workers.pop(0)
            os.kill(killed, signal.SIGKILL)
            market.wait(killed)
    market.until(lambda: len(market.booked()) == len(market.scored()) == messages, "all are handled")
    market.until(market.stall.is_empty, "all are committed")
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
        assert market.wait(worker) == 0, market.story()
    market.checked(*ids, crashes=kills)  # only attempts lost with their worker are repeated
    return outcome_of(ids, market.scored(), market.stall.pending(), time.monotonic() - began)


def stop_brokers(folder: Path, *, stops: int = 5, messages: int = 3000) -> Outcome:
    """Stop all brokers under load, for longer than the session of the consumer, and start them again."""
    handled: Counter[str] = Counter()
    began = time.monotonic()
    with MockCluster() as cluster:
        cluster.create(TOPIC, PARTITIONS)
        stall = KafkaStall(cluster.address, TOPIC)
        ids = [f"p-{number:05}" for number in range(messages)]
        source = KafkaTopic(cluster.address, TOPIC, group=GROUP, options=QUICK)
        with App(sqlite_ledger(folder), sources=[source]) as app:

            @app.on("paid", name="book")
            def book(event: Event[Any]) -> None:
                handled[event.id] += 1

            with app.worker(threads=2):
                for number in range(stops + 1):
                    part = ids[messages * number // (stops + 1) : messages * (number + 1) // (stops + 1)]
                    stall.send(tuple(part), {})
                    if number < stops:
                        cluster.stop()
                        threading.Event().wait(1.2 * QUICK["session.timeout.ms"] / 1000)
                        cluster.start()
                until(lambda: len(handled) == messages, f"{messages} are handled")
                until(stall.is_empty, "all are committed")
            assert app.ledger.counts()["book"].done == messages
        return outcome_of(ids, handled, unread(cluster.address, TOPIC, GROUP), time.monotonic() - began)
