"""`redrive layers`: how often nested layers retry an error at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ....core.text import format_duration, pluralise
from ....ops.retries.native_policy import NativeReport
from ....ops.retries.native_policy import native as read_native
from ....ops.retries.retry_stacks import (
    Advice,
    LayersReport,
    Stack,
    WorstCaseError,
    WorstCaseLayer,
    of_app,
)
from ....ops.retries.retry_stacks import layers as read_layers
from ...errors import BAD_INPUT, exit_on_error, fail
from ...options import AsJson, argument, option
from ...render import (
    DASH,
    bullets,
    console,
    dim,
    fields,
    heading,
    indent,
    plain_table,
    print_json,
    section,
    show,
)
from ...render.charts import timeline

MULTIPLIES_ATTEMPTS = 1
MAX_TIMELINE_COLUMNS = 120
"""Width of a timeline if the output has no limit."""
MIN_FULL_COLUMNS = 76
"""Width below which the tables leave out what the findings say."""
MAX_PRINTED_WAITS = 8
UNDECLARED = (
    "Retries of clients that a function calls are not included. To see those of a client, pass it: "
    "module:client."
)


def layers(
    *,
    source: Annotated[
        str | None,
        argument("SOURCE", "TOML file with [[layer]] tables, module:object or module:app"),
    ] = None,
    client: Annotated[
        str | None, option("--native", "CLIENT", "Client in whose terms a policy is shown")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the worst case of nested retries.

    Shows the number of attempts, the longest duration, and which layer handles which error. SOURCE
    is a TOML file, or module:object in the current directory. The object is a Retry, a function
    decorated with one, or a list of these, outermost first. For an App, each command, handler and
    dataset is shown.

    With --native the policy is shown in the terms of a client: tenacity, botocore, azure, pyarrow,
    obstore, grpc, urllib3, httpx, google, celery or temporal. SOURCE is then a TOML file with a
    [retry] table, or module:object of a RetryPolicy. The default is RetryPolicy().

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
        _native(client, source, as_json)
        return
    if source is None:
        fail(BAD_INPUT, "SOURCE: missing; pass a TOML file with [[layer]] tables, or module:object")
    with exit_on_error():
        stacks = of_app(source)
        if stacks is not None:
            _show_stacks(source, stacks, as_json)
        report = read_layers(source)
    if as_json:
        print_json({"source": source, **report.as_dict()})
    else:
        show(_layers_view(report, console().width))
    raise typer.Exit(MULTIPLIES_ATTEMPTS if report.multiplies else 0)


# --- The stacks of an app


def _show_stacks(source: str, stacks: Sequence[Stack], as_json: bool) -> NoReturn:
    """Print the stack of each command, handler and dataset, and end the command."""
    if as_json:
        print_json({"source": source, "kinds": [_stack_data(stack) for stack in stacks]})
    else:
        parts = [part for stack in stacks for part in _stack_parts(stack)]
        show(Group(*parts, dim(UNDECLARED)))
    multiplies = any(stack.inside is not None and stack.inside.multiplies for stack in stacks)
    raise typer.Exit(MULTIPLIES_ATTEMPTS if multiplies else 0)


def _stack_data(stack: Stack) -> dict[str, Any]:
    inside = None if stack.inside is None else stack.inside.as_dict()
    return {"kind": stack.kind, "durable": stack.durable.as_dict(), "inside": inside}


def _stack_parts(stack: Stack) -> list[RenderableType]:
    inside = stack.inside
    body: list[RenderableType] = [
        fields(
            {
                "by workers": _worker_attempts(stack.durable.layers[0]),
                "in process": "one attempt, as declared by the app"
                if inside is None
                else _worst_case(inside),
            }
        )
    ]
    if inside is not None and inside.advice:
        body.append(_findings(inside.advice))
    return [heading(stack.kind), indent(Group(*body)), ""]


def _worker_attempts(layer: WorstCaseLayer) -> Text:
    waits = [format_duration(longest) for _, longest in layer.waits[:MAX_PRINTED_WAITS]]
    more = " …" if layer.max_attempts > len(waits) + 1 else ""
    after = f", after {', '.join(waits)}{more} at most" if waits else ""
    limit = layer.attempt_timeout
    each = "no time limit" if limit is None else f"at most {format_duration(limit)} each"
    return Text(f"{pluralise(layer.max_attempts, 'attempt')}{after}; {each}")


# --- The layers of a stack


def _layers_view(report: LayersReport, width: int) -> Group:
    parts: list[RenderableType] = [
        _worst_case(report),
        *section("Layers, outermost first", _layer_table(report.layers, width)),
        *section(
            "Longest backoff, if attempts fail immediately", _backoff_table(report.layers, width)
        ),
        *section("Owner of each error", _error_table(report.errors, width)),
    ]
    if report.advice:
        parts += section("Findings", _findings(report.advice))
    return Group(*parts)


def _worst_case(report: LayersReport) -> Text:
    attempts = pluralise(report.attempts, "attempt")
    mixed = f" ({pluralise(report.mixed_attempts, 'attempt')} if errors change)"
    limit = "without a time limit"
    if report.seconds is not None:
        limit = f"in at most {format_duration(report.seconds)}"
    text = Text("Worst case: ")
    text.append(attempts, style="bold red" if report.multiplies else "bold green")
    text.append(" in total for one call, ")
    text.append(limit, style="bold")
    return text.append("." if report.attempts == report.mixed_attempts else f"{mixed}.")


def _layer_table(layers: Sequence[WorstCaseLayer], width: int) -> Table:
    numbers = ("attempts", "each", "limit", "total", "longest")
    columns = ["layer", "by", *numbers]
    if width < MIN_FULL_COLUMNS:
        columns = [column for column in columns if column not in ("each", "limit")]
    table = plain_table(*columns, numbers=numbers)
    for layer in layers:
        is_limited = layer.attempts != layer.max_attempts
        reached = f"{layer.attempts} of {layer.max_attempts}" if is_limited else layer.max_attempts
        cells = {
            "layer": layer.name,
            "by": layer.by,
            "attempts": str(reached),
            "each": _duration(layer.attempt_timeout),
            "limit": _duration(layer.limit),
            "total": f"{layer.calls:,}",
            "longest": _duration(layer.seconds),
        }
        table.add_row(*(cells[column] for column in columns))
    return table


def _duration(seconds: float | None) -> str:
    return DASH if seconds is None else format_duration(seconds)


def _backoff_table(layers: Sequence[WorstCaseLayer], width: int) -> Table:
    width = min(width, MAX_TIMELINE_COLUMNS)
    name_width = min(max(len(layer.name) for layer in layers), max(8, width // 4))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=name_width, overflow="ellipsis", no_wrap=True)
    table.add_column()
    for layer in layers:
        lines: list[RenderableType] = [dim("one attempt")]
        if layer.max_attempts > 1:
            waits = [longest for _, longest in layer.waits]
            has_more = layer.max_attempts > len(waits) + 1
            columns = max(12, width - name_width - 6)
            lines = [*timeline(waits, layer.limit, columns, has_more=has_more)]
        table.add_row(layer.name, Group(*lines))
    return table


def _error_table(errors: Sequence[WorstCaseError], width: int) -> Table:
    """Return the owner of each error. Errors with the same outcome share a line."""
    groups: dict[tuple[str, ...], list[WorstCaseError]] = {}
    for error in errors:
        outcome = (str(error.owner or "none"), f"{error.attempts:,}", _duration(error.seconds))
        groups.setdefault((*outcome, ", ".join(error.again)), []).append(error)
    shows_repeaters = width >= MIN_FULL_COLUMNS and any(error.again for error in errors)
    names = [
        "error",
        "owner",
        "total",
        "longest",
        *(["also retried by"] if shows_repeaters else []),
    ]
    table = plain_table(*names, numbers=("total", "longest"))
    for (owner, total, longest, repeaters), group in groups.items():
        cells = [", ".join(error.error for error in group), owner, total, longest]
        cells += [repeaters] if shows_repeaters else []
        table.add_row(*cells, style="red" if repeaters else None)
    return table


def _findings(advice: Sequence[Advice]) -> Table:
    items: list[tuple[RenderableType, RenderableType]] = []
    for each in advice:
        text = each.says if each.layer is not None else each.says[0].upper() + each.says[1:]
        sign = Text("✗", style="bold red") if each.multiplies else Text("•", style="yellow")
        items += [(sign, Text(f"{text}.")), ("", dim(f"→ {each.do}."))]
    return bullets(items)


# --- A policy in the terms of a client


def _native(client: str, source: str | None, as_json: bool) -> None:
    """Print the policy. A setting without an equivalent is not an error."""
    with exit_on_error():
        report = read_native(client, source)
    if as_json:
        print_json(report.as_dict())
    else:
        show(_native_view(report))


def _native_view(report: NativeReport) -> Group:
    settings = plain_table("field", "policy", f"in {report.client}")
    for field, setting in report.words:
        value = getattr(report.policy, field)
        text = str(value) if field == "max_attempts" else format_duration(value)
        missing = Text("no equivalent", style="yellow")
        settings.add_row(field, text, missing if setting is None else setting)
    parts = section("Fields", settings)
    if report.waits:
        waits = plain_table("after attempt", "policy", report.client, numbers=("after attempt",))
        for attempt, (asked, own) in enumerate(zip(report.asked, report.waits, strict=True), 1):
            style = "" if own == asked else "yellow"
            waits.add_row(str(attempt), _range(asked), Text(_range(own), style=style))
        parts += section("Backoff", waits)
    notes = [(Text("•", style="yellow"), note) for note in report.notes]
    parts += section("Notes", bullets(notes))
    return Group(*parts[1:])


def _range(bounds: tuple[float, float]) -> str:
    shortest, longest = map(format_duration, bounds)
    return shortest if bounds[0] == bounds[1] else f"{shortest} to {longest}"
