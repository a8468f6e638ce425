"""Defaults for operators, the same for the command line, the console and the API."""

from __future__ import annotations

MAX_REPLAYS = 10
"""A dead letter that was replayed this many times is skipped."""
QUIET = 60.0
"""Seconds without a heartbeat after which a worker is offline."""
MOST_COUNTED = 100_000
"""Totals of lists are counted up to this number."""
MAX_CHAIN_JOBS = 100
"""Jobs of one dead letter that are read: the one that died, and its replays."""
