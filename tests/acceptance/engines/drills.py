"""`make engine-drills`: long drills of the engines, as a table. To add a drill, add a row to `DRILLS`.

python -m tests.acceptance.engines.drills [part of an engine's name ...]
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.acceptance.engines import kafka_drills, nats_drills, rabbit_drills, redis_drills
from tests.acceptance.engines.outcome import Outcome
from tests.servers.process import ServerMissing

Drill = Callable[[Path], Outcome]

DRILLS: Sequence[tuple[str, str, Drill]] = (
    ("NATS, three servers", "leader killed five times", nats_drills.kill_leaders),
    ("NATS, one server", "server killed five times", nats_drills.kill_server),
    ("Kafka (mock), 3 nodes", "workers join, ten are killed", kafka_drills.kill_workers),
    ("Kafka (mock), 3 nodes", "all brokers stopped five times", kafka_drills.stop_brokers),
    ("Redis, three masters", "slot moved five times", redis_drills.move_slot),
    ("Redis, three masters", "master killed five times", redis_drills.kill_master),
    ("Redis, with a replica", "master killed three times", redis_drills.promote_replica),
    ("Redis, Sentinels", "master killed three times", redis_drills.fail_over),
    ("RabbitMQ, three nodes", "leader killed five times", rabbit_drills.kill_leaders),
    ("RabbitMQ, one node", "server killed five times", rabbit_drills.kill_server),
)
"""Engine, fault, and the function that runs the drill in an empty folder."""


def main(arguments: Sequence[str]) -> int:
    """Run the drills, and return 1 if one of them lost or doubled a message."""
    status = 0
    print(f"{'engine':<22}{'drill':<34}{'sent':>8}{'lost':>6}{'twice':>7}{'left':>6}{'seconds':>9}")
    for engine, title, drill in DRILLS:
        if arguments and not any(word.lower() in engine.lower() for word in arguments):
            continue
        line = f"{engine:<22}{title:<34}"
        try:
            with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
                found = drill(Path(folder))
            line += f"{found.sent:>8}{found.lost:>6}{found.twice:>7}{found.left:>6}{found.seconds:>9.1f}"
            line += "" if found.is_good else "  FAILED"
            status = status if found.is_good else 1
        except ServerMissing as missing:
            line += f"  NOT RUN: {missing}"
            status = 1
        except Exception:
            line += "  FAILED\n" + traceback.format_exc()
            status = 1
        print(line, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
