"""Each server is there, does one thing, and is gone afterwards."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import redis
from azure.storage.blob import BlobClient

from tests.servers.buckets import client

ROOT = Path(__file__).parents[2]


def test_postgres_answers(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT 6 * 7").fetchone() == (42,)


def test_a_database_is_the_tests_own(postgres: str, postgres_db: str) -> None:
    with psycopg.connect(postgres_db) as connection:
        connection.execute("CREATE TABLE mine (id int)")
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT to_regclass('mine')").fetchone() == (None,)


def test_redis_answers(redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    entry = client.xadd("test_redis_answers", {"a": "1"})
    assert client.xrange("test_redis_answers") == [(entry, {b"a": b"1"})]
    client.delete("test_redis_answers")
    client.close()


def test_s3_answers(s3_url: str, s3_bucket: str) -> None:
    s3 = client(s3_url)
    s3.put_object(Bucket=s3_bucket, Key="a/b", Body=b"1")
    assert s3.get_object(Bucket=s3_bucket, Key="a/b")["Body"].read() == b"1"
    s3.close()


def test_azure_answers(azure_connection: str, azure_container: str) -> None:
    with BlobClient.from_connection_string(azure_connection, azure_container, "a/b") as blob:
        blob.upload_blob(b"1")
        assert blob.download_blob().readall() == b"1"


def test_a_killed_run_takes_its_servers_with_it() -> None:
    program = (
        "import time\n"
        "from tests.servers.redis import redis_server\n"
        "with redis_server() as url:\n"
        "    print(url, flush=True)\n"
        "    time.sleep(60)\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}  # without an address given from outside
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()
        folder = folder_of(url)
        run.send_signal(signal.SIGKILL)
        run.wait()
    deadline = time.monotonic() + 10
    while answers(url):
        assert time.monotonic() < deadline, "the server outlived its test run"
        time.sleep(0.05)
    shutil.rmtree(folder)  # the one thing that a killed run leaves behind


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
