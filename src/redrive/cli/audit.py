"""`redrive audit`: who decided what, when and why; and whether that was changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from ..core.amount import amount
from ..ops.audit import Decision
from ..ops.document import document
from .fit import Column, fitted
from .moments import ago, utc
from .options import NOT_DONE, AsJson, Since, Where, operator, since_of
from .output import console, print_json, show

app = typer.Typer(no_args_is_help=True, help="The audit: who decided what, when and why.")


@app.command("list")
def list_(
    by: Annotated[str | None, typer.Option("--by", metavar="ACTOR", help="Only by this one.", show_default=False)] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="Only dead.replay, or all of dead.", show_default=False)
    ] = None,
    since: Since = None,
    people: Annotated[bool, typer.Option("--people", help="Not what policies decided by themselves.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 50,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List decisions, the newest first.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found = ops.audit(actor=by, action=action, since=since_of(since), limit=limit, people=people)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            show(out, _decisions(found, ops.now(), out.width))
        else:
            narrowed = people or any(each is not None for each in (by, action, since))
            show(
                out,
                Text(
                    "no decision matches"
                    if narrowed
                    else "nobody has decided anything yet: nothing replayed, discarded, released"
                ),
            )


def _decisions(found: Sequence[Decision], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("no", number=True),
        Column("when"),
        Column("UTC", leave=1),
        Column("who", least=8),
        Column("what", least=16),
        Column("because", least=20),
    ]
    rows = [
        {
            "no": str(one.number),
            "when": ago(one.at, now),
            "UTC": utc(one.at),
            "who": one.actor,
            "what": f"{one.action} {_what(one.what)}".strip(),
            "because": one.because,
        }
        for one in found
    ]
    return fitted(columns, rows, width)


def _what(what: Mapping[str, Any]) -> str:
    acted = what.get("jobs") or what.get("letters") or what.get("items") or what.get("partitions")
    if isinstance(acted, (dict, list)):
        of = f"{what['batch']}: " if "batch" in what else ""
        return of + ", ".join(map(str, list(acted)[:3])) + (f" and {len(acted) - 3} more" if len(acted) > 3 else "")
    if "partition" in what:
        return f"{what['partition']} to run {what['to']}" if "to" in what else str(what["partition"])
    if "sweep" in what:
        kept = "letters" if "letters" in what else "partitions"
        return f"sweep {what['sweep']}" + (f", {what['count']:,} {kept}" if "count" in what else "")
    return str(what["key"]) if "key" in what else json.dumps(document(what), ensure_ascii=False)


@app.command()
def verify(
    anchor: Annotated[
        str | None, typer.Option("--anchor", metavar="N:HASH", help="What an earlier verify printed.", show_default=False)
    ] = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Follow the chain of hashes through the whole audit, and say where it breaks first.

    The chain shows what was changed, put in, moved or removed from the middle. That its end was cut off is shown only by an
    anchor that was kept elsewhere: note what this prints, and give it back by --anchor.

    Exit status: 0, it holds; 1, it is broken; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        chain = ops.verify(anchor)
    if as_json:
        print_json(document(chain) | {"holds": chain.holds})
    elif chain.holds:
        entries = amount(chain.entries, "entry", "entries")
        show(console(), Text(f"The audit holds: {entries}, each as it was written.\nAnchor: {chain.anchor}"))
    else:
        show(
            console(),
            Text(f"Entry {chain.broken}: {chain.problem}. Up to entry {chain.entries} the audit holds.", style="bold red"),
        )
    raise typer.Exit(0 if chain.holds else NOT_DONE)
