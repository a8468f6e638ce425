"""How much a worker's process grows by handling many messages, in MiB:
python -m benchmarks.streamed.memory URL REDIS_URL MESSAGES

Measured from when a tenth of them is handled, so that what is made once does not count. The stream is filled while it is read.
"""

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.durable.peers import tell
from benchmarks.streamed.clock import GROUP, PAYLOAD, STREAM, TYPE, fill

STEP = 2000


def resident() -> float:
    """MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("this system does not say how much memory a process has")


def main() -> None:
    import redis

    from redrive import App, Event
    from redrive.messages import RedisStream

    url, redis_url, messages = sys.argv[1], sys.argv[2], int(sys.argv[3])
    app = App(url, migrate=True, sources=[RedisStream(redis_url, STREAM, group=GROUP, trim=True)])
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
                for _ in range(STEP):
                    pipeline.xadd(STREAM, {"type": TYPE, "payload": PAYLOAD})
                pipeline.execute()
                sent += STEP
            else:
                time.sleep(0.002)
            if not before and handled[0] >= messages // 10:
                before = resident()
        tell(resident() - before)


if __name__ == "__main__":
    main()
