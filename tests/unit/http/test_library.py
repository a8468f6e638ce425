"""Optional libraries: the transport works with httpx or httpx2 alone, the clients need httpx2."""

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
    ("there", "missing", "message"),
    [
        ("httpx", "httpx2", 'redrive.http.Client needs httpx2: pip install "redrive[http]"'),
        ("httpx2", "httpx", "a client"),
    ],
)
def test_the_transport_needs_only_one_library(there: str, missing: str, message: str) -> None:
    with FaultServer(503, 200) as server:
        program = WITHOUT.format(there=there, missing=missing, url=server.url)
        done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["200", message], done.stderr
