"""`redrive layers`: what a stack of retrying layers can do in the worst case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...core.text import format_duration, pluralise
from ...ops.retry_stacks import Advice, LayersReport, Stack, Unreadable, WorstCaseError, WorstCaseLayer, of_app
from ...ops.retry_stacks import layers as read_layers
from ..native import native
from ..options import option
from ..render.output import BAD_INPUT, bullets, complain, console, heading, pairs, print_json, show, table
from ..render.timeline import timeline

MULTIPLIED = 1
WIDEST = 120
"""Columns of a timeline, also where the output is not cut."""
UNDECLARED = "Retries of clients that a function calls are not included. To see those of a client, pass it: module:client."
NARROW = 76
"""Below so many columns, the table of the layers leaves out what the advice says anyway."""


def layers(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="TOML file with [[layer]] tables, module:object or module:app", show_default=False),
    ] = None,
    client: Annotated[str | None, option("--native", "CLIENT", "Client in whose terms a policy is shown")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Output as one JSON document")] = False,
) -> None:
    """Show the worst case of nested retries.

    Shows the number of attempts, the longest duration, and which layer handles which error. SOURCE
    is a TOML file, or module:object in the current directory. The object is a Retry, a function
    decorated with one, or a list of these, outermost first. For an App, each command, handler and
    dataset is shown.

    With --native the policy is shown in the terms of a client: tenacity, botocore, azure, pyarrow,
    grpc, urllib3 or httpx. SOURCE is then a TOML file with a [retry] table, or module:object of a
    RetryPolicy. The default is RetryPolicy().

    Examples:
        redrive layers stack.toml
        redrive layers shop:app
        redrive layers --native httpx

    Exit codes:
        0: no layer multiplies attempts
        1: a layer retries errors that another layer already retried
        2: invalid option, or the source cannot be read
    """
    if client is not None:
        native(client, source, as_json=as_json)
        return
    if source is None:
        complain("SOURCE: missing; pass a TOML file with [[layer]] tables, or module:object")
        raise typer.Exit(BAD_INPUT)
    try:
        kinds = of_app(source)
        if kinds is not None:
            _kinds(source, kinds, as_json)
        report = read_layers(source)
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        print_json({"source": source, **report.as_dict()})
    else:
        _show(report, console())
    raise typer.Exit(MULTIPLIED if report.multiplies else 0)


def _kinds(source: str, stacks: Sequence[Stack], as_json: bool) -> NoReturn:
    """Of an app: kind by kind."""
    if as_json:
        said = [
            {"kind": one.kind, "durable": one.durable.as_dict(), "inside": None if one.inside is None else one.inside.as_dict()}
            for one in stacks
        ]
        print_json({"source": source, "kinds": said})
    else:
        out = console()
        shown: list[RenderableType] = []
        for one in stacks:
            made = pairs()
            made.add_row("by workers", _by_workers(one.durable.layers[0]))
            made.add_row("in process", "one attempt, as declared by the app" if one.inside is None else _sentence(one.inside))
            body: list[RenderableType] = [made]
            if one.inside is not None and one.inside.advice:
                body.append(_advice(one.inside.advice))
            shown += [heading(one.kind), Padding(Group(*body), (0, 0, 0, 2), expand=False), ""]
        show(out, Group(*shown, Text(UNDECLARED, style="dim")))
    raise typer.Exit(MULTIPLIED if any(one.inside is not None and one.inside.multiplies for one in stacks) else 0)


def _by_workers(layer: WorstCaseLayer) -> Text:
    waits = ", ".join(format_duration(longest) for _, longest in layer.waits[:8])
    after = f", after {waits}{' …' if layer.max_attempts > len(layer.waits[:8]) + 1 else ''} at most" if waits else ""
    each = "no time limit" if layer.attempt_timeout is None else f"at most {format_duration(layer.attempt_timeout)} each"
    return Text(f"{_times(layer.max_attempts)}{after}; {each}")


def _show(report: LayersReport, out: Console) -> None:
    parts: list[tuple[str, RenderableType]] = [
        ("Layers, outermost first", _layers(report.layers, out.width)),
        ("Longest backoff, if attempts fail immediately", _waits(report.layers, out.width)),
        ("Owner of each error", _errors(report.errors, out.width)),
    ]
    if report.advice:
        parts.append(("Findings", _advice(report.advice)))
    shown: list[RenderableType] = [_sentence(report)]
    for title, body in parts:
        shown += ["", heading(title), Padding(body, (0, 0, 0, 2), expand=False)]
    show(out, Group(*shown))


def _sentence(report: LayersReport) -> Text:
    said = Text("Worst case: ")
    said.append(_times(report.attempts), style="bold red" if report.multiplies else "bold green")
    said.append(" in total for one call, ")
    limit = "without a time limit" if report.seconds is None else f"in at most {format_duration(report.seconds)}"
    said.append(limit, style="bold")
    return said.append(
        "." if report.attempts == report.mixed_attempts else f" ({_times(report.mixed_attempts)} if errors change)."
    )


def _times(attempts: int) -> str:
    return pluralise(attempts, "attempt")


def _layers(layers: Sequence[WorstCaseLayer], width: int) -> Table:
    numbers = ("attempts", "each", "limit", "total", "longest")
    columns = ["layer", "by", "attempts", "each", "limit", "total", "longest"]
    if width < NARROW:
        columns = [column for column in columns if column not in ("each", "limit")]
    made = table(*columns, numbers=numbers)
    for layer in layers:
        reached = str(layer.max_attempts) if layer.attempts == layer.max_attempts else f"{layer.attempts} of {layer.max_attempts}"
        cells = {
            "layer": layer.name,
            "by": layer.by,
            "attempts": reached,
            "each": _limit(layer.attempt_timeout),
            "limit": _limit(layer.limit),
            "total": f"{layer.calls:,}",
            "longest": _limit(layer.seconds),
        }
        made.add_row(*(cells[column] for column in columns))
    return made


def _limit(seconds: float | None) -> str:
    return "–" if seconds is None else format_duration(seconds)


def _waits(layers: Sequence[WorstCaseLayer], width: int) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    width = min(width, WIDEST)
    longest = max(len(layer.name) for layer in layers)
    named = min(longest, max(8, width // 4))
    made.add_column(width=named, overflow="ellipsis", no_wrap=True)
    made.add_column()
    for layer in layers:
        lines: list[Text] = [Text("one attempt", style="dim")]
        if layer.max_attempts > 1:
            more = layer.max_attempts > len(layer.waits) + 1
            lines = timeline([longest for _, longest in layer.waits], layer.limit, max(12, width - named - 6), more=more)
        made.add_row(layer.name, Group(*lines))
    return made


def _errors(errors: Sequence[WorstCaseError], width: int) -> Table:
    """Errors that fare alike share a line."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for error in errors:
        alike.setdefault((error.owner, error.attempts, error.seconds, error.again), []).append(error.error)
    multiplied = width >= NARROW and any(error.again for error in errors)
    made = table("error", "owner", "total", "longest", *(["also retried by"] if multiplied else []), numbers=("total", "longest"))
    for (owner, attempts, seconds, again), names in alike.items():
        assert isinstance(again, tuple)
        assert seconds is None or isinstance(seconds, float)
        cells = [", ".join(names), str(owner or "none"), f"{attempts:,}", _limit(seconds)]
        made.add_row(*cells, *([", ".join(again)] if multiplied else []), style="red" if again else None)
    return made


def _advice(advice: Sequence[Advice]) -> Table:
    made = bullets()
    for one in advice:
        says = Text(f"{one.says[0].upper()}{one.says[1:]}.") if one.layer is None else Text(f"{one.says}.")
        made.add_row(Text("✗", style="bold red") if one.multiplies else Text("•", style="yellow"), says)
        made.add_row("", Text(f"→ {one.do}.", style="dim"))
    return made
