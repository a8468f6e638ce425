"""The demo: a shop with unreliable services (`redrive demo`), and scripted scenarios (`--once`).

- `shop` is the app, and `services` are the external services with their faults.
- `traffic` simulates orders, and `live` runs the shop with a worker and the console.
- `scenarios` are short scripts, one for each feature.
"""

from __future__ import annotations

import logging

# The scenarios print given-up items themselves. Log lines would disturb the display.
logging.getLogger("redrive").addHandler(logging.NullHandler())
