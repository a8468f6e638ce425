"""Wires the parts that every test may use; each is described in its own file."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["tests.servers.fixtures", "tests.requirements"]

# These machines are noisy: a slow example is no failure. Under CI the examples are the same in every run.
settings.register_profile("redrive", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "redrive")
