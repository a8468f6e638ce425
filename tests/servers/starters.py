"""Every server by name, with a context manager that starts it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.servers.azurite import azure_server
from tests.servers.chromium import chromium
from tests.servers.kafka import kafka_server
from tests.servers.nats import nats_server
from tests.servers.oidc import oidc_provider
from tests.servers.postgres import postgres_server
from tests.servers.rabbitmq import rabbitmq_server
from tests.servers.redis import redis_server
from tests.servers.redis_cluster import redis_cluster_server
from tests.servers.seaweed import s3_server
from tests.servers.sftp import asyncssh_server, openssh_server
from tests.servers.temporal import temporal_server

STARTERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "Postgres": postgres_server,
    "Redis": redis_server,
    "Redis Cluster": redis_cluster_server,
    "NATS": nats_server,
    "Kafka": kafka_server,
    "RabbitMQ": rabbitmq_server,
    "SFTP": asyncssh_server,
    "OpenSSH": openssh_server,
    "S3": s3_server,
    "Azure": azure_server,
    "Chromium": chromium,
    "Temporal": temporal_server,
    "OIDC": oidc_provider,
}
"""Each yields its URL, or raises ServerMissing if the machine has no such server."""
