"""The live demonstration that `make demo` runs: a flaky server of its own, and what Redrive makes of it."""

from __future__ import annotations

import logging

# The scenes show which items are given up: the same lines of the log would break the picture.
logging.getLogger("redrive").addHandler(logging.NullHandler())
