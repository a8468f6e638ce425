"""World: everything outside the shop, and how badly it behaves. The same every time: its dice are thrown from one seed."""

from __future__ import annotations

import random
import threading
from collections import Counter

from redrive import Stop

SEED = 20260131


class World:
    """Services that fail as they are told. Threads may share it."""

    def __init__(self) -> None:
        self._random = random.Random(SEED)
        self._lock = threading.Lock()
        self.down: set[str] = set()
        """Services that answer nobody now."""
        self.mended: set[str] = set()
        """Services whose bug was found."""
        self.asked: Counter[str] = Counter()

    def ask(self, service: str, *, fails: float = 0.0) -> None:
        """One request: an outage, a hiccup, or an answer."""
        with self._lock:
            self.asked[service] += 1
            drawn = self._random.random()
        if service in self.down:
            raise ConnectionError(f"{service} is down")
        if drawn < fails and service not in self.mended:
            raise TimeoutError(f"{service} did not respond in time")

    def parse(self, service: str, text: str) -> None:
        """A bug of somebody's: one kind of input cannot be handled, whatever one does, until it is mended."""
        if "ß" in text and service not in self.mended:
            raise Stop(f"{service}: street names with sharp s cannot be printed")


WORLD = World()
