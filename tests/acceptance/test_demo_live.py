"""The demonstration with its console: within a minute there is something to see on every page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

from redrive.console.render.navigation import NAV

FULL = "REDRIVE_FULL" in os.environ
PATIENCE = 60.0 if FULL else 270.0
"""Seconds: a minute is promised; the test run, on a machine that may be very busy, waits for longer."""


SOON = {"/", "/journal", "/jobs", "/partitions", "/workers"}
"""Where there is something from the beginning; the rest has its turn within half a minute."""


def test_something_to_see_on_every_page() -> None:
    pages = {page.path for _, pages in NAV for page in pages}
    assert pages >= SOON
    seen(pages if FULL else SOON)


def seen(left: set[str]) -> None:
    """Wait for it, and end it with Ctrl+C."""
    command = [sys.executable, "-W", "error", "-m", "redrive", "demo", "--json", "--port", "0"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    try:
        started = json.loads(demo.stdout.readline())
        url, token = started["url"].rstrip("/"), started["token"]
        end = time.monotonic() + PATIENCE
        while left:
            assert time.monotonic() < end, f"nothing to see on {sorted(left)}"
            left = {path for path in left if 'class="empty"' in asked(url + path, token)}
            time.sleep(0.1)
    finally:
        demo.send_signal(signal.SIGINT)
        _, said = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, said) == (0, "")


def asked(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 200
        return str(answer.read().decode())
