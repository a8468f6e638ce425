"""`python -m redrive.demo` and `redrive demo`: the live shop, or with --once every scenario."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec

ONCE_EXTRAS = {"alembic": "ledger", "rich": "cli", "sqlalchemy": "ledger"}
LIVE_EXTRAS = {
    "alembic": "ledger",
    "fastapi": "console",
    "jinja2": "console",
    "rich": "cli",
    "uvicorn": "console",
}
"""The extra that installs each package."""


def main() -> None:
    """Run the demo. With --json, print only the measurements."""
    parser = argparse.ArgumentParser(prog="redrive demo", description="Run the Redrive demo.")
    parser.add_argument(
        "--once",
        action="store_true",
        help="Run every scenario without the console, and print a summary",
    )
    parser.add_argument(
        "--port", type=int, default=8321, help="Port of the console (0: any free port)"
    )
    parser.add_argument(
        "--seconds", type=float, default=None, help="Seconds until it stops (default: Ctrl+C)"
    )
    parser.add_argument(
        "--json", action="store_true", help="Print only the measurements, as one JSON document"
    )
    options = parser.parse_args()
    extras = ONCE_EXTRAS if options.once else LIVE_EXTRAS
    if missing := sorted({extra for name, extra in extras.items() if find_spec(name) is None}):
        sys.exit(f'The demo needs: pip install "redrive[{",".join(missing)}]"')
    # grpcio reads this when it is imported. Its messages about stopped servers would disturb.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if options.once:
        from .scenarios import run_scenarios  # noqa: PLC0415  # the extras may be missing

        run_scenarios(as_json=options.json)
        return
    from .live import ConsoleNotStarted, run_live  # noqa: PLC0415  # the same

    try:
        run_live(as_json=options.json, port=options.port, seconds=options.seconds)
    except ConsoleNotStarted as error:
        sys.exit(str(error))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
