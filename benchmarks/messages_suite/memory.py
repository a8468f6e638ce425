"""Memory growth of a worker in MiB.

Run it with `python -m benchmarks.messages_suite.memory URL REDIS_URL MESSAGES`.

The measurement starts after a tenth of the messages, so that start-up does not count. The stream is filled while it is read.
"""

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.isolation import print_result
from benchmarks.messages_suite.clock import GROUP, PAYLOAD, STREAM, TYPE, fill
from redrive import App, Event

STEP = 2000


def resident_memory() -> float:
    """Return the resident memory of this process in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("cannot read the memory size of a process on this system")


def measure(url: str, redis_url: str, messages: str) -> float:
    """Return the memory growth in MiB."""
    from redrive.messages import RedisStream

    with App(url, migrate=True, sources=[RedisStream(redis_url, STREAM, group=GROUP, trim=True)]) as app:
        return _growth(app, redis_url, int(messages))


def _growth(app: App, redis_url: str, messages: int) -> float:
    import redis

    handled = [0]

    @app.on(TYPE, name="noop")
    def noop(_event: Event[dict[str, Any]]) -> None:
        handled[0] += 1

    fill(redis_url, 0)
    sent, before = 0, 0.0
    with redis.Redis.from_url(redis_url) as client, app.worker():
        while handled[0] < messages:
            if sent < messages and sent - handled[0] < 2 * STEP:
                pipeline = client.pipeline(transaction=False)
                for _ in range(step := min(STEP, messages - sent)):
                    pipeline.xadd(STREAM, {"type": TYPE, "payload": PAYLOAD})
                pipeline.execute()
                sent += step
            else:
                time.sleep(0.002)
            if not before and handled[0] >= messages // 10:
                before = resident_memory()
        return resident_memory() - before


if __name__ == "__main__":
    print_result(measure(*sys.argv[1:]))
