"""`python -m redrive.demo`: plays every scene, then sums up."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib.util import find_spec

if not all(map(find_spec, ("alembic", "grpc", "rich", "sqlalchemy"))):  # asked for here, to say what to install
    sys.exit('The demonstration needs three extras: pip install "redrive[cli,grpc,ledger]"')
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read when grpcio is loaded, which tells of servers that go away

from rich.console import Console
from rich.table import Table

from .scene import Figures
from .scenes import SCENES
from .stage import Stage


def main() -> None:
    """Play, and leave; with --json, only the figures are printed."""
    parser = argparse.ArgumentParser(prog="python -m redrive.demo", description="See Redrive at work.")
    parser.add_argument("--json", action="store_true", help="print only what was measured, as one JSON document")
    only_figures = parser.parse_args().json
    stage = Stage(None if only_figures else Console(highlight=False))
    began = time.monotonic()
    figures: dict[str, Figures] = {}
    for scene in SCENES:
        with stage.scene(scene.title):
            figures[scene.name] = scene.play(stage)
    seconds = round(time.monotonic() - began, 1)
    if only_figures:
        print(json.dumps({"seconds": seconds, "scenes": figures}, indent=2))
        return
    title = f"What was measured, in {seconds} s; requests as the server counted them"
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
