"""Messages that one handler does nothing with, through the whole worker: python -m benchmarks.streamed.own URL REDIS_URL BATCH
MESSAGES"""

import sys
import time
from typing import Any

from benchmarks.apart import tell
from benchmarks.streamed.clock import GROUP, STREAM, TYPE, Clock, fill
from redrive import App, Event


def measured(url: str, redis_url: str, batch: str, many: str) -> float:
    """In a second."""
    from redrive.messages import RedisStream

    with App(url, migrate=True, sources=[RedisStream(redis_url, STREAM, group=GROUP, batch=int(batch))]) as app:
        return _rate(app, redis_url, int(many))


def _rate(app: App, redis_url: str, messages: int) -> float:
    import redis

    clock = Clock(messages)

    @app.on(TYPE, name="noop")
    def noop(_event: Event[dict[str, Any]]) -> None:
        clock.tick()

    fill(redis_url, messages)
    worker = app.worker().start()
    clock.over.wait(120)
    with redis.Redis.from_url(redis_url) as client:
        left: Any = {"pending": 1}
        while worker.status.done < messages or left["pending"]:
            time.sleep(0.001)
            left = client.xpending(STREAM, GROUP)
    clock.stop()  # handled, settled and acknowledged
    worker.close()
    if problems := app.ledger.imbalance():
        raise RuntimeError(f"the counts do not add up: {problems}")
    return clock.rate


if __name__ == "__main__":
    tell(measured(*sys.argv[1:]))
