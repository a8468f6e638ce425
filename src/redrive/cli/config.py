"""`redrive config`: what is set, and by what."""

from __future__ import annotations

import typer

from ..ops.document import document
from ..ops.imported import Unreadable
from ..ops.settings import told
from .fit import Column, fitted
from .options import AsJson
from .output import BAD_INPUT, complain, console, print_json, show


def config(as_json: AsJson = False) -> None:
    """Show what redrive.toml and the environment say, and which of them said it.

    The environment goes before the file; an option of a command goes before both. Secrets are hidden; one that stands in the
    file as it is, and not hashed, is warned of.

    Exit status: 0, shown; 2, a name is unknown or a value makes no sense: the message says which, and where.
    """
    try:
        found = told()
    except Unreadable as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    if as_json:
        print_json(document(found))
        return
    out = console()
    columns = [Column("name"), Column("value", least=24), Column("said by", least=12), Column("variable", leave=1)]
    rows = [{"name": one.name, "value": _shown(one.value), "said by": one.said_by, "variable": one.variable} for one in found]
    show(out, fitted(columns, rows, out.width))
    for one in found:
        if one.warns is not None:
            complain(f"{one.name} {one.warns}")


def _shown(value: object) -> str:
    if value is None or value == ():
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
