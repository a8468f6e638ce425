"""Memory is bounded by the size of a piece: 64 MiB through each backend, measured in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.buckets import options
from tests.servers.graph import graph_server

SIZE = 64 * 1024 * 1024
PROGRAM = """
import json, resource, sys
def peak():  # of this program alone: getrusage counts the process that started it too
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from redrive.storage import Registry, RegistryConfig
kind, options = sys.argv[1], json.loads(sys.argv[2])
store = Registry(RegistryConfig.from_dict({"stores": {"s": {"type": kind, "options": options}}})).get_store("s")
store.write("warm", b"x" * 100_000)
store.read_bytes("warm")
moved = 0
def progress(count):
    global moved
    moved += count
before = peak()
store.write("memory-test", (bytes(1_000_003) for _ in range(SIZE // 1_000_003)), progress=progress)
assert moved == SIZE // 1_000_003 * 1_000_003
read = 0
with store.read("memory-test") as file:
    while piece := file.read(500_000):
        read += len(piece)
assert read == moved, (read, moved)
after = peak()
print((after - before) * 1024)
"""


def memory_growth(kind: str, options: dict[str, Any]) -> int:
    """Return by how many bytes a process grew that wrote and read the file."""
    program = PROGRAM.replace("SIZE", str(SIZE))
    done = subprocess.run([sys.executable, "-c", program, kind, json.dumps(options)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.req("S-12")
def test_memory_of_local(tmp_path: Path) -> None:
    assert memory_growth("local", {"root": str(tmp_path)}) < 12 * 1024 * 1024


@pytest.mark.req("S-12")
def test_memory_of_sftp(sftp_options: dict[str, Any]) -> None:
    assert memory_growth("sftp", sftp_options) < 48 * 1024 * 1024


@pytest.mark.req("S-12")
def test_memory_of_graph() -> None:
    with graph_server() as server:
        options = {"drive": "drives/d1", "token": "good", "base_url": f"{server.service}/v1.0"}
        assert memory_growth("graph", options) < 40 * 1024 * 1024


@pytest.mark.req("S-12")
@pytest.mark.skipif("REDRIVE_FULL" not in os.environ, reason="make bench-storage measures it: REDRIVE_FULL=1 runs it here")
@pytest.mark.parametrize("kind", ["s3", "s3-pyarrow", "s3-obstore"])
def test_memory_of_s3(s3_url: str, s3_bucket: str, kind: str) -> None:
    assert memory_growth(kind, {"bucket": s3_bucket, **options(s3_url)}) < 56 * 1024 * 1024


@pytest.mark.req("S-12")
@pytest.mark.skipif("REDRIVE_FULL" not in os.environ, reason="make bench-storage measures it: REDRIVE_FULL=1 runs it here")
@pytest.mark.parametrize("kind", ["azure", "azure-obstore"])
def test_memory_of_azure(azure_connection: str, azure_container: str, kind: str) -> None:
    assert memory_growth(kind, {"container": azure_container, "connection_string": azure_connection}) < 48 * 1024 * 1024
