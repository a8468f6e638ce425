"""The scripted scenarios, in the order in which `redrive demo --once` runs them."""

from __future__ import annotations

import json
import time
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table

from .calls import NESTED_LAYERS, OUTAGE, RECOVERY, RETRY_AFTER
from .full_day import FULL_DAY
from .jobs import BATCH_UPLOAD, FAILED_HANDLER, KILLED_WORKER, PARKED_COMMANDS
from .scenario import Display, Scenario


def _grpc_scenarios() -> tuple[Scenario, ...]:
    if find_spec("grpc") is None:  # every other scenario only needs the extra `ledger`
        return ()
    from .grpc_incident import GRPC_INCIDENT  # noqa: PLC0415

    return (GRPC_INCIDENT,)


SCENARIOS = (
    RECOVERY,
    OUTAGE,
    NESTED_LAYERS,
    RETRY_AFTER,
    KILLED_WORKER,
    *_grpc_scenarios(),
    BATCH_UPLOAD,
    PARKED_COMMANDS,
    FAILED_HANDLER,
    FULL_DAY,
)


def run_scenarios(*, as_json: bool) -> None:
    """Run every scenario, and print the measurements."""
    display = Display(None if as_json else Console(highlight=False))
    started = time.monotonic()
    figures = {}
    for number, scenario in enumerate(SCENARIOS, 1):
        with display.section(f"{number}. {scenario.title}"):
            figures[scenario.name] = scenario.run(display)
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        print(json.dumps({"seconds": seconds, "scenes": figures}, indent=2))
        return
    summary = Table(
        title=f"Measurements, in {seconds} s (requests are counted by the server)",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
        header_style="dim",
    )
    summary.add_column("scenario", no_wrap=True)
    summary.add_column("measured")
    summary.add_column("read on", no_wrap=True)
    for scenario in SCENARIOS:
        result = scenario.summarize(figures[scenario.name])
        summary.add_row(scenario.name, result, scenario.docs_page)
    display.table(summary)
