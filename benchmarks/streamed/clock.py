"""Clock: how many messages in a second, once everybody is at work."""

import threading
import time

STREAM, GROUP, TYPE = "bench", "bench", "noop"
PAYLOAD = b'{"id": 1, "f": "noop", "a": []}'


class Clock:
    """Runs from when the first twentieth is handled. One thread at a time may tell it."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.handled = 0
        self._first = max(1, messages // 20)
        self._began = self._ended = 0.0
        self.over = threading.Event()

    def tick(self) -> None:
        """One more was handled."""
        self.handled += 1
        if self.handled == self._first:
            self._began = time.perf_counter()
        if self.handled == self.messages:
            self.stop()

    def many(self, count: int) -> None:
        """So many more."""
        for _ in range(count):
            self.tick()

    def stop(self) -> None:
        """All of them were; the last call counts."""
        self._ended = time.perf_counter()
        self.over.set()

    @property
    def rate(self) -> float:
        """In a second."""
        if self.handled < self.messages:
            raise TimeoutError(f"only {self.handled} of {self.messages}")
        return (self.messages - self._first) / (self._ended - self._began)


def fill(redis_url: str, messages: int) -> None:
    """An empty server, with so many messages in a stream of which a group has read none."""
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        for at in range(0, messages, 500):
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(500, messages - at)):
                pipeline.xadd(STREAM, {"type": TYPE, "payload": PAYLOAD})
            pipeline.execute()
