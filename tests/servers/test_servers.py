"""Each server starts, works and is stopped afterwards."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
import redis
from azure.storage.blob import BlobClient

from tests.servers.buckets import client
from tests.servers.keeper import Kept, reply_with
from tests.servers.process import ServerMissing
from tests.servers.starters import STARTERS

ROOT = Path(__file__).parents[2]


def test_postgres_responds(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT 6 * 7").fetchone() == (42,)


def test_each_test_has_its_own_database(postgres: str, postgres_db: str) -> None:
    with psycopg.connect(postgres_db) as connection:
        connection.execute("CREATE TABLE mine (id int)")
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT to_regclass('mine')").fetchone() == (None,)


def test_redis_responds(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    entry = client.xadd("test_redis_responds", {"a": "1"})
    assert client.xrange("test_redis_responds") == [(entry, {b"a": b"1"})]
    client.delete("test_redis_responds")
    client.close()


def test_s3_responds(s3_url: str, s3_bucket: str) -> None:
    s3 = client(s3_url)
    s3.put_object(Bucket=s3_bucket, Key="a/b", Body=b"1")
    assert s3.get_object(Bucket=s3_bucket, Key="a/b")["Body"].read() == b"1"
    s3.close()


def test_azure_responds(azure_connection: str, azure_container: str) -> None:
    with BlobClient.from_connection_string(azure_connection, azure_container, "a/b") as blob:
        blob.upload_blob(b"1")
        assert blob.download_blob().readall() == b"1"


ALONE = """
import time
from tests.servers.redis import redis_server
with redis_server() as url:
    print(url, flush=True)
    time.sleep(60)
"""
SIDE_BY_SIDE = """
import time
from tests.servers.keeper import Keeper, ask
keeper = Keeper()
assert ask(keeper.door, "Redis") == ask(keeper.door, "Redis")
print(ask(keeper.door, "Redis"), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("program", [ALONE, SIDE_BY_SIDE], ids=["alone", "side by side"])
def test_servers_of_a_killed_run_are_stopped(program: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}  # without an address from the environment
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        folder = folder_of(url)
        run.send_signal(signal.SIGKILL)
        run.wait()
    stays = partial(answers, url) if program == ALONE else Path(folder).exists
    deadline = time.monotonic() + 60
    while stays():
        assert time.monotonic() < deadline, "the server outlived its test run"
        time.sleep(0.05)
    assert not answers(url)
    shutil.rmtree(folder, ignore_errors=True)  # the only file that a killed run without a keeper leaves


@contextmanager
def missing() -> Iterator[str]:
    raise ServerMissing("install it")
    yield ""


@contextmanager
def broken() -> Iterator[str]:
    raise OSError("no disk")
    yield ""


@contextmanager
def there() -> Iterator[str]:
    yield "here"


@pytest.mark.parametrize(
    ("start", "said"),
    [(there, {"address": "here"}), (missing, {"missing": "install it"}), (broken, {"broken": "no disk"})],
)
def test_the_server_process_reports_addresses_and_errors(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], AbstractContextManager[str]], said: dict[str, str]
) -> None:
    monkeypatch.setitem(STARTERS, "It", start)
    end = threading.Event()
    kept = Kept("It", end)
    assert json.loads(reply_with(kept.address)) == said
    end.set()
    kept.thread.join()


def folder_of(url: str) -> str:
    client = redis.Redis.from_url(url, decode_responses=True)
    try:
        return str(client.config_get("dir")["dir"])
    finally:
        client.close()


def answers(url: str) -> bool:
    client = redis.Redis.from_url(url, retry=None)
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()
