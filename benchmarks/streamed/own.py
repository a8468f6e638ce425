"""Messages that one handler does nothing with, through the whole worker: python -m benchmarks.streamed.own URL REDIS_URL BATCH
MESSAGES"""

import sys
import time
from typing import Any

from benchmarks.durable.peers import tell
from benchmarks.streamed.clock import GROUP, STREAM, TYPE, Clock, fill


def main() -> None:
    import redis

    from redrive import App, Event
    from redrive.messages import RedisStream

    url, redis_url, batch, messages = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    app = App(url, migrate=True, sources=[RedisStream(redis_url, STREAM, group=GROUP, batch=batch)])
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
    tell(clock.rate)


if __name__ == "__main__":
    main()
