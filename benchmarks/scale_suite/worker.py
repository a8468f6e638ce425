"""A worker process that waits for a pause to end, and then runs empty commands.

Run it with `python -m benchmarks.scale_suite.worker URL`. It ends when its standard input is closed.
"""

import resource
import sys

from benchmarks.isolation import print_result
from redrive import App

COMMAND = "noop"


def main(url: str) -> None:
    with App(url) as app:

        @app.command(COMMAND)
        async def noop() -> None:
            return None

        with app.worker():
            sys.stdin.read()
    print_result(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main(sys.argv[1])
