"""The live demo: within a minute, every page of the console has content."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

from redrive.console.view import NAVIGATION

FULL = "REDRIVE_FULL" in os.environ
TIMEOUT_SECONDS = 60.0 if FULL else 270.0
"""The demo promises a minute. The test waits longer, because the machine may be very busy."""
FILLED_AT_START = {"/", "/journal", "/jobs", "/partitions", "/workers"}
"""Pages with content from the start. The others fill within half a minute."""


def test_every_page_of_the_live_demo_has_content() -> None:
    pages = {page.path for _, pages in NAVIGATION for page in pages}
    assert pages >= FILLED_AT_START
    wait_for_content(pages if FULL else FILLED_AT_START)


def wait_for_content(empty: set[str]) -> None:
    """Run the demo until no page is empty, and stop it with Ctrl+C."""
    command = [sys.executable, "-W", "error", "-m", "redrive", "demo", "--json", "--port", "0"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    try:
        started = json.loads(demo.stdout.readline())
        url, token = started["url"].rstrip("/"), started["token"]
        end = time.monotonic() + TIMEOUT_SECONDS
        while empty:
            assert time.monotonic() < end, f"still empty: {sorted(empty)}"
            empty = {path for path in empty if 'class="empty"' in get(url + path, token)}
            time.sleep(0.1)
    finally:
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=TIMEOUT_SECONDS)
    assert (demo.returncode, errors) == (0, "")


def get(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        assert response.status == 200
        return str(response.read().decode())
