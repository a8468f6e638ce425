"""`redrive simulate`: the load that retries put on a service in an outage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from ....core.text import format_duration, pluralise
from ....ops.retries.simulation import (
    OutageFigures,
    SimulationReport,
    draw,
    read_scenario,
    simulate,
)
from ...errors import BAD_INPUT, exit_on_error, fail
from ...options import AsJson, flag, option
from ...render import dim, plain_table, print_json, section, show
from ...render.progress import time_progress

NOT_RECOVERED = 1
MAX_CALM_FACTOR, MAX_BUSY_FACTOR = 2.0, 5.0
"""Peaks up to these multiples of the normal load are green and yellow. Higher ones are red."""


def simulate_outage(
    *,
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="TOML file with the scenario")
    ],
    picture: Annotated[
        str | None, option("--svg", "FILE", "Also draw the load over time into this SVG file")
    ] = None,
    seed: Annotated[
        int | None,
        option(
            "--seed", "N", "Seed of the random numbers (default: that of the file, or 1)", min=0
        ),
    ] = None,
    quiet: Annotated[bool, flag("--quiet", "Without a progress bar")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate the load of retries in an outage.

    Simulates a fleet of clients that call a service with a capacity, a queue and outages, once for
    each policy of the scenario. Shows the peak load, the attempts per call, the failed calls and
    the time to recover. Nothing is called: time and service are simulated. The decisions are those
    of `retry(...)`, its budgets and its breakers. Needs the extra `simulate`.

    Examples:
        redrive simulate outage.toml
        redrive simulate outage.toml --svg outage.svg
        redrive simulate outage.toml --seed 7 --json

    Exit codes:
        0: the service recovers under every policy, or the scenario has no outage
        1: under a policy, the service does not recover within the simulated time
        2: invalid option or scenario, or the extra is missing
    """
    file = None if picture is None else Path(picture)
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        fail(BAD_INPUT, f"--svg {picture}: not a file in an existing folder")
    with exit_on_error():
        description = read_scenario(scenario)
        total = description.seconds * len(description.policies)
        with time_progress("simulate", total, quiet=quiet or as_json) as advance:
            report = simulate(description, seed=seed, progress=advance)
        if file is not None:
            try:
                file.write_text(draw(report), encoding="utf-8")
            except OSError as problem:
                fail(BAD_INPUT, f"--svg {picture}: cannot be written ({problem.strerror})")
    if as_json:
        print_json(report.as_dict())
    else:
        show(_view(report, picture))
    has_outage = bool(description.outages)
    lasts = any(run.figures.recovered_after is None for run in report.runs)
    raise typer.Exit(NOT_RECOVERED if has_outage and lasts else 0)


def _view(report: SimulationReport, picture: str | None) -> Group:
    scenario = report.scenario
    clients, service = scenario.clients, scenario.service
    table = plain_table(
        "policy",
        "peak load",
        "× normal",
        "attempts per call",
        "failed calls",
        "recovered after",
        numbers=("peak load", "× normal", "attempts per call", "failed calls", "recovered after"),
    )
    for run in report.runs:
        figures = run.figures
        table.add_row(
            run.policy,
            f"{figures.peak_load:,}/s",
            _peak(figures),
            f"{figures.amplification:.2f}",
            f"{100 * (1 - figures.success_rate):.1f} %",
            _recovery(figures, bool(scenario.outages)),
        )
    processes = pluralise(clients.processes, "process", "processes")
    fleet = (
        f"{pluralise(clients.count, 'client')} in {processes}, "
        f"{clients.rate:,.0f} calls/s; capacity {service.capacity:,.0f}/s; "
        f"{format_duration(scenario.seconds)} simulated"
    )
    outages = [
        f"{outage.kind} from {format_duration(outage.at)} for {format_duration(outage.lasts)}"
        for outage in scenario.outages
    ]
    parts: list[RenderableType] = [
        Text(scenario.title, style="bold"),
        dim(fleet),
        dim(f"Outages: {', '.join(outages) or 'none'}. Seed {report.seed}."),
        *section("Policies", table),
    ]
    if picture is not None:
        parts += ["", dim(f"Picture: {picture}")]
    return Group(*parts)


def _peak(figures: OutageFigures) -> Text:
    factor = figures.peak_factor
    style = "green" if factor <= MAX_CALM_FACTOR else "yellow"
    return Text(f"{factor:.1f}", style=style if factor <= MAX_BUSY_FACTOR else "bold red")


def _recovery(figures: OutageFigures, has_outage: bool) -> Text:
    if figures.recovered_after is None:
        return Text("not recovered", style="bold red") if has_outage else Text("–")
    return Text(format_duration(figures.recovered_after))
