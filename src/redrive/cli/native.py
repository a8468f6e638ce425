"""Output of `redrive layers --native CLIENT`: a policy in the settings of a client."""

from __future__ import annotations

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ..core.text import format_duration
from ..ops.native_policy import NativeReport, Unreadable
from ..ops.native_policy import native as read_native
from .render.output import BAD_INPUT, bullets, complain, console, heading, print_json, show, table


def native(client: str, source: str | None, *, as_json: bool) -> None:
    """Print it; a mapping that has to leave something out is no failure."""
    try:
        report = read_native(client, source)
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        print_json(report.as_dict())
    else:
        _show(report, console())


def _show(report: NativeReport, out: Console) -> None:
    words = table("field", "policy", f"in {report.client}")
    for field, word in report.words:
        words.add_row(field, _value(field, report), Text("no equivalent", style="yellow") if word is None else word)
    parts: list[tuple[str, RenderableType]] = [("Fields", words)]
    if report.waits:
        waits = table("after attempt", "policy", report.client, numbers=("after attempt",))
        for attempt, (asked, own) in enumerate(zip(report.asked, report.waits, strict=True), 1):
            waits.add_row(str(attempt), _between(asked), Text(_between(own), style="" if own == asked else "yellow"))
        parts.append(("Backoff", waits))
    known = bullets()
    for note in report.notes:
        known.add_row(Text("•", style="yellow"), note)
    parts.append(("Notes", known))
    shown: list[RenderableType] = []
    for title, body in parts:
        shown += [heading(title), Padding(body, (0, 0, 0, 2), expand=False), ""]
    show(out, Group(*shown[:-1]))


def _value(field: str, report: NativeReport) -> str:
    value = getattr(report.policy, field)
    return str(value) if field == "max_attempts" else format_duration(value)


def _between(pair: tuple[float, float]) -> str:
    least, most = pair
    return format_duration(least) if least == most else f"{format_duration(least)} to {format_duration(most)}"
