"""Messages with an empty handler and the whole worker.

Run it with `python -m benchmarks.messages_suite.own URL REDIS_URL BATCH MESSAGES`.
"""

import sys
import time
from typing import Any

from benchmarks.isolation import print_result
from benchmarks.messages_suite.clock import GROUP, STREAM, TYPE, Clock, fill
from redrive import App, Event


def measure(url: str, redis_url: str, batch: str, messages: str) -> float:
    """Return messages per second."""
    from redrive.messages import RedisStream

    with App(url, migrate=True, sources=[RedisStream(redis_url, STREAM, group=GROUP, batch=int(batch))]) as app:
        return _rate(app, redis_url, int(messages))


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
        group: Any = {"pending": 1}
        while worker.status.done < messages or group["pending"]:
            time.sleep(0.001)
            group = client.xpending(STREAM, GROUP)
    clock.stop()  # handled, settled and acknowledged
    worker.close()
    if problems := app.ledger.imbalance():
        raise RuntimeError(f"inconsistent counters: {problems}")
    return clock.rate


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
