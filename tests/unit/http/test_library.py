"""What is installed: the transport works with either library alone, the clients say what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redrive.testing import FaultServer

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from redrive import http, retry
import {there} as library
with library.Client(transport=http.Transport(retry=retry(backoff_base=0, jitter=0))) as client:
    print(client.get({url!r}).status_code)
try:
    http.Client({url!r})
except ImportError as error:
    print(error)
else:
    print("a client")
"""


@pytest.mark.parametrize(
    ("there", "missing", "said"),
    [
        ("httpx", "httpx2", 'redrive.http.Client needs httpx2: pip install "redrive[http]"'),
        ("httpx2", "httpx", "a client"),
    ],
)
def test_one_library_is_enough(there: str, missing: str, said: str) -> None:
    with FaultServer(503, 200) as server:
        program = WITHOUT.format(there=there, missing=missing, url=server.url)
        done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["200", said], done.stderr
