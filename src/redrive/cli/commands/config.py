"""`redrive config`: what is set, and by what."""

from __future__ import annotations

import typer

from ...ops.render import document
from ...ops.settings import list_settings
from ...ops.user_code import Unreadable
from ..options import AsJson
from ..render.output import BAD_INPUT, complain, console, print_json, show
from ..render.table import Column, fitted


def config(as_json: AsJson = False) -> None:
    """Show the effective configuration.

    Each setting is shown with its value and its origin. An option of a command overrides the
    environment, which overrides redrive.toml. Secrets are hidden. A secret in clear text in
    redrive.toml causes a warning.

    Examples:
        redrive config
        redrive config --json

    Exit codes:
        0: shown
        2: unknown name or invalid value in the configuration
    """
    try:
        found = list_settings()
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        print_json(document(found))
        return
    out = console()
    columns = [Column("name"), Column("value", least=24), Column("set by", least=12), Column("variable", leave=1)]
    rows = [{"name": one.name, "value": _shown(one.value), "set by": one.said_by, "variable": one.variable} for one in found]
    show(out, fitted(columns, rows, out.width))
    for one in found:
        if one.warns is not None:
            complain(f"{one.name} {one.warns}")


def _shown(value: object) -> str:
    if value is None or value == ():
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
