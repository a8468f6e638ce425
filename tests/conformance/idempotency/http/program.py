"""A process that serves the shop of a framework until it is killed."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from redrive import App

from .shop import FRAMEWORKS, Shops


def main(arguments: Sequence[str]) -> int:
    """Serve. The arguments are a framework and the URL of a ledger. The output is the port."""
    name, url = arguments
    shops = Shops(FRAMEWORKS[name], App(url))
    print(shops.serve().port, flush=True)
    signal.pause()
    shops.close()
    return 0
