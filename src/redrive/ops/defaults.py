"""Defaults of what an operator does, the same for the command line, the console and the API."""

from __future__ import annotations

MAX_REPLAYS = 10
"""A dead letter that was replayed so often is left alone."""
QUIET = 60.0
"""Seconds without a heartbeat after which a worker counts as gone."""
