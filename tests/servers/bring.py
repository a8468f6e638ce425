"""Installs programs without a wheel into .cache: `python -m tests.servers.bring`, a part of `make install`.

A failed installation is reported and does not stop the others. Tests that need the program report it again, and fail under CI.
"""

from __future__ import annotations

import time

from tests.servers import azurite, chromium, interpreter, promtool, rabbitmq
from tests.servers.process import ServerMissing

BROUGHT = {
    "Azurite": azurite.bring,
    "Chromium": chromium.bring,
    "promtool": promtool.bring,
    "RabbitMQ": rabbitmq.bring,
    f"Python {interpreter.VERSION}": interpreter.bring,
}


def main() -> None:
    for name, bring in BROUGHT.items():
        began = time.monotonic()
        try:
            home = bring()
        except ServerMissing as missing:
            print(f"NOT BROUGHT: {name.upper()}. {missing}", flush=True)
            continue
        if time.monotonic() - began > 1:
            print(f"{name} is in {home.name} after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
