"""`python -m redrive.demo`, and `redrive demo`: the shop with its console; or, with --once, every scene to its end."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.util import find_spec

ONCE = {"alembic": "ledger", "rich": "cli", "sqlalchemy": "ledger"}
LIVE = {"alembic": "ledger", "fastapi": "console", "jinja2": "console", "rich": "cli", "uvicorn": "console"}


def main() -> None:
    """Play, and leave; with --json, only the figures are printed."""
    parser = argparse.ArgumentParser(prog="redrive demo", description="Run the demonstration of Redrive.")
    parser.add_argument("--once", action="store_true", help="Run every scene without the console, and print a summary")
    parser.add_argument("--port", type=int, default=8321, help="Port of the console (0: any free port)")
    parser.add_argument("--seconds", type=float, default=None, help="Seconds until it stops (default: Ctrl+C)")
    parser.add_argument("--json", action="store_true", help="Print only the measurements, as one JSON document")
    asked = parser.parse_args()
    needed = ONCE if asked.once else LIVE
    if missing := sorted({extra for module, extra in needed.items() if find_spec(module) is None}):
        sys.exit(f'The demonstration needs: pip install "redrive[{",".join(missing)}]"')
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read when grpcio is loaded, which tells of servers that go away
    if asked.once:
        once(only_figures=asked.json)
        return
    from rich.console import Console  # noqa: PLC0415  # it was not certain that it is there

    from .live import NotThere, play  # noqa: PLC0415  # likewise

    try:
        play(None if asked.json else Console(highlight=False), port=asked.port, seconds=asked.seconds)
    except NotThere as said:
        sys.exit(str(said))


def once(*, only_figures: bool) -> None:
    """Every scene to its end; the last one proves that nothing was lost."""
    from rich.console import Console  # noqa: PLC0415  # it was not certain that it is there
    from rich.table import Table  # noqa: PLC0415  # likewise

    from .scene import Figures  # noqa: PLC0415  # likewise
    from .scenes import SCENES  # noqa: PLC0415  # likewise
    from .stage import Stage  # noqa: PLC0415  # likewise

    stage = Stage(None if only_figures else Console(highlight=False))
    began = time.monotonic()
    figures: dict[str, Figures] = {}
    for number, scene in enumerate(SCENES, 1):
        with stage.scene(f"{number}. {scene.title}"):
            figures[scene.name] = scene.play(stage)
    seconds = round(time.monotonic() - began, 1)
    if only_figures:
        print(json.dumps({"seconds": seconds, "scenes": figures}, indent=2))
        return
    title = f"Measurements, in {seconds} s (requests are counted by the server)"
    summary = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), header_style="dim")
    summary.add_column("scene", no_wrap=True)
    summary.add_column("measured")
    summary.add_column("read on", no_wrap=True)
    for scene in SCENES:
        summary.add_row(scene.name, scene.told(figures[scene.name]), scene.read)
    stage.table(summary)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
