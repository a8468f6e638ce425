"""The servers as pytest fixtures, and the summary of missing ones."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.servers.keeper import Keeper, ask
from tests.servers.process import ServerMissing
from tests.servers.sftp import sshd
from tests.servers.starters import STARTERS


class Servers:
    """Servers that this session started, servers that are missing, and the number of tests that needed these.

    In parallel runs the server process (keeper) owns the servers, and `door` is its address.
    """

    def __init__(self, door: str | None = None, process: str = "") -> None:
        self.door = door
        self.process = process
        """The name of this process in a parallel run."""
        self.keeper: Keeper | None = None
        self.stack = ExitStack()
        self.addresses: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.not_run: Counter[str] = Counter()

    def address(self, name: str) -> str:
        """Return the server's URL. Without a server, fail the test under CI and skip it elsewhere."""
        if name not in self.addresses and name not in self.missing:
            try:
                start = STARTERS[name]
                self.addresses[name] = ask(self.door, name) if self.door else self.stack.enter_context(start())
            except ServerMissing as missing:
                self.missing[name] = str(missing)
        if name in self.addresses:
            return self.addresses[name]
        if os.environ.get("CI") == "true":
            pytest.fail(f"there is no {name} server, and CI=true: {self.missing[name]}", pytrace=False)
        self.not_run[name] += 1
        pytest.skip(f"no {name} server: {self.missing[name]}")


SERVERS = pytest.StashKey[Servers]()


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {})
    config.stash[SERVERS] = Servers(given.get("servers"), given.get("workerid", ""))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the address of the server process to a new parallel process."""
    servers: Servers = node.config.stash[SERVERS]
    if servers.keeper is None:
        servers.keeper = Keeper()
        servers.stack.callback(servers.keeper.close)
    node.workerinput["servers"] = servers.keeper.door


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The process that prints the summary has started no server in a parallel run, so the others report to it."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        servers = session.config.stash[SERVERS]
        told["not_run"] = {name: (tests, servers.missing[name]) for name, tests in servers.not_run.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the missing servers of an ended parallel process."""
    servers = node.config.stash[SERVERS]
    for name, (tests, missing) in getattr(node, "workeroutput", {}).get("not_run", {}).items():
        servers.not_run[name] += tests
        servers.missing[name] = missing


def pytest_unconfigure(config: pytest.Config) -> None:
    # Also runs after an interrupt. Servers of a killed run end with it (see process.py and keeper.py).
    config.stash[SERVERS].stack.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    servers = config.stash[SERVERS]
    for name, tests in servers.not_run.items():
        terminalreporter.write_line(
            f"NOT RUN: {tests} TESTS THAT NEED {name.upper()}. TO GET IT: {servers.missing[name]}", red=True, bold=True
        )


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> str:
    """The URL of the run's Postgres server. For your own rows use `postgres_db`."""
    return request.config.stash[SERVERS].address("Postgres")


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """The URL of the run's Redis (or Valkey) server. All tests share it, so use unique names."""
    return request.config.stash[SERVERS].address("Redis")


@pytest.fixture
def redis_cluster_url(request: pytest.FixtureRequest) -> str:
    """The URL of the run's cluster of three Redis (or Valkey) masters. All tests share it, so use unique names."""
    return request.config.stash[SERVERS].address("Redis Cluster")


@pytest.fixture
def nats_url(request: pytest.FixtureRequest) -> str:
    """The URL of the run's NATS server, with JetStream. All tests share it, so use unique names."""
    return request.config.stash[SERVERS].address("NATS")


@pytest.fixture
def kafka_servers(request: pytest.FixtureRequest) -> str:
    """The address of the run's Kafka. All tests share it, so use unique names."""
    return request.config.stash[SERVERS].address("Kafka")


@pytest.fixture
def temporal_address(request: pytest.FixtureRequest) -> str:
    """Host and port of the run's Temporal server. All tests share it, so use unique task queues."""
    return request.config.stash[SERVERS].address("Temporal")


@pytest.fixture(scope="session")
def oidc_issuer(pytestconfig: pytest.Config) -> str:
    """The address of the run's OpenID Connect provider. Any name signs in (see tests/servers/oidc.py)."""
    return pytestconfig.stash[SERVERS].address("OIDC")


@pytest.fixture
def rabbitmq(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The run's RabbitMQ: `url`, and `name` and `epmd` for `tests.servers.rabbitmq.evaluate`. Use unique queues."""
    found: dict[str, Any] = json.loads(request.config.stash[SERVERS].address("RabbitMQ"))
    return found


@pytest.fixture
def sftp_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of the backend `sftp` for the run's asyncssh server. All tests share it, so use unique folders."""
    found: dict[str, Any] = json.loads(request.config.stash[SERVERS].address("SFTP"))
    return found


@pytest.fixture
def openssh_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The same for OpenSSH's server. Machines without it run these tests on the asyncssh server only."""
    if sshd() is None:
        pytest.skip("no OpenSSH server here; the same tests run on asyncssh's")
    found: dict[str, Any] = json.loads(request.config.stash[SERVERS].address("OpenSSH"))
    return found


@pytest.fixture
def postgres_db(postgres: str) -> Iterator[str]:
    """The URL of a database for this test, dropped after it."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield urlsplit(postgres)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture
def s3_url(request: pytest.FixtureRequest) -> str:
    """The URL of the run's S3 server, with key and secret. For your own objects use `s3_bucket`."""
    return request.config.stash[SERVERS].address("S3")


@pytest.fixture(scope="session")
def _s3(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Created once, because a client of botocore is slow to create."""
    from tests.servers.buckets import client

    s3 = client(request.config.stash[SERVERS].address("S3"))
    yield s3
    s3.close()


@pytest.fixture(scope="session")
def _s3_bucket_made(request: pytest.FixtureRequest, _s3: Any) -> str:
    name = f"tests{request.config.stash[SERVERS].process}"  # parallel tests do not empty each other's bucket
    _s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def s3_bucket(_s3: Any, _s3_bucket_made: str) -> Iterator[str]:
    """The name of an empty bucket for this test, emptied after it. Creating a new one takes half a second."""
    yield _s3_bucket_made
    for page in _s3.get_paginator("list_objects_v2").paginate(Bucket=_s3_bucket_made):
        found = [{"Key": each["Key"]} for each in page.get("Contents", ())]
        if found:
            _s3.delete_objects(Bucket=_s3_bucket_made, Delete={"Objects": found})


@pytest.fixture
def azure_connection(request: pytest.FixtureRequest) -> str:
    """The connection string of the run's Azure blob server. For your own blobs use `azure_container`."""
    return request.config.stash[SERVERS].address("Azure")


@pytest.fixture
def azure_container(azure_connection: str) -> Iterator[str]:
    """The name of a container for this test, removed after it."""
    from azure.storage.blob import ContainerClient

    name = f"test-{uuid.uuid4().hex[:12]}"
    with ContainerClient.from_connection_string(azure_connection, name) as container:
        container.create_container()
        try:
            yield name
        finally:
            container.delete_container()


@pytest.fixture(scope="session")
def chromium_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of Playwright's `chromium.launch(**options)`."""
    found: dict[str, Any] = json.loads(request.config.stash[SERVERS].address("Chromium"))
    return found
