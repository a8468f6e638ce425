"""Measures messages per second, without the start-up of a worker."""

import threading
import time

STREAM, GROUP, TYPE = "bench", "bench", "noop"
PAYLOAD = b'{"id": 1, "f": "noop", "a": []}'


class Clock:
    """Starts when the first 5 % of the messages are handled. Not thread-safe."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.handled = 0
        self._first = max(1, messages // 20)
        self._began = self._ended = 0.0
        self.over = threading.Event()

    def tick(self) -> None:
        """Count one handled message."""
        self.handled += 1
        if self.handled == self._first:
            self._began = time.perf_counter()
        if self.handled == self.messages:
            self.stop()

    def add(self, count: int) -> None:
        """Count several handled messages."""
        for _ in range(count):
            self.tick()

    def stop(self) -> None:
        """Stop the clock. Only the last call counts."""
        self._ended = time.perf_counter()
        self.over.set()

    @property
    def rate(self) -> float:
        """Messages per second."""
        if self.handled < self.messages:
            raise TimeoutError(f"only {self.handled} of {self.messages} messages")
        return (self.messages - self._first) / (self._ended - self._began)


def fill(redis_url: str, messages: int) -> None:
    """Empty the server, then add a consumer group and unread messages."""
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        for at in range(0, messages, 500):
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(500, messages - at)):
                pipeline.xadd(STREAM, {"type": TYPE, "payload": PAYLOAD})
            pipeline.execute()
