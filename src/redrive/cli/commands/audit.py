"""`redrive audit`: who decided what, when and why; and whether that was changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from ...core.text import pluralise
from ...ops.audit import Decision
from ...ops.render import document
from ..command import Commands
from ..options import NOT_DONE, AsJson, Since, Until, Where, operator, times_of
from ..render.details import showing, with_note
from ..render.moments import ago, utc
from ..render.output import console, print_json, show
from ..render.suggestions import spelled
from ..render.table import Column, fitted

app = Commands(help="List and verify the audit log.")
HIDDEN = "Automatic entries are hidden; `redrive audit list --all` includes them."


@app.command("list")
def list_(
    by: Annotated[
        str | None, typer.Option("--by", metavar="ACTOR", help="Only decisions of this name", show_default=False)
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action", metavar="NAME", help="Only this action, such as dead.replay, or dead for all of them", show_default=False
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    everything: Annotated[bool, typer.Option("--all", help="Include automatic decisions of policies")] = False,
    _people: Annotated[bool, typer.Option("--people", hidden=True, help="The default")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of decisions")] = 50,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List decisions from the audit log.

    Newest first. Decisions of people and of your programs are listed. --all includes decisions that
    policies made automatically.

    Examples:
        redrive audit list
        redrive audit list --by ann --action dead --since 7d
        redrive audit list --all

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        asked: dict[str, Any] = {"actor": by, "action": action, **times_of(since, until), "limit": limit}
        found = ops.audit.find(**asked, people=not everything)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            more = showing(len(found)) if len(found) == limit else None
            hidden = HIDDEN if not everything and _has_automatic(found, ops.audit.find(**asked)) else None
            show(out, with_note(_decisions(found, ops.now(), out.width), more, hidden and spelled(hidden)))
        else:
            narrowed = any(each is not None for each in (by, action, since, until))
            none = "No decision matches." if narrowed else "No decisions."
            show(out, Text(none if everything else spelled(f"{none} `redrive audit list --all` includes automatic ones.")))


def _has_automatic(shown: Sequence[Decision], every: Sequence[Decision]) -> bool:
    """Whether entries are missing in a list of decisions of people, so that its numbers have gaps."""
    return bool({entry.number for entry in every} - {entry.number for entry in shown})


def _decisions(found: Sequence[Decision], now: datetime, width: int) -> RenderableType:
    columns = [
        Column("number", number=True),
        Column("when"),
        Column("UTC", leave=1),
        Column("by", least=8),
        Column("action", least=16),
        Column("because", least=20),
    ]
    rows = [
        {
            "number": str(one.number),
            "when": ago(one.at, now),
            "UTC": utc(one.at),
            "by": one.actor,
            "action": f"{one.action} {_what(one.what)}".strip(),
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
    if "kind" in what:
        return f"{what['kind']} ({what['signature']})" if "signature" in what else str(what["kind"])
    if "partition" in what:
        return f"{what['partition']} to run {what['to']}" if "to" in what else str(what["partition"])
    if "sweep" in what:
        kept = "letters" if "letters" in what else "partitions"
        return f"sweep {what['sweep']}" + (f", {what['count']:,} {kept}" if "count" in what else "")
    if "key" in what:
        return str(what["key"])
    return json.dumps(document(what), ensure_ascii=False) if what else ""


@app.command()
def verify(
    anchor: Annotated[
        str | None, typer.Option("--anchor", metavar="N:HASH", help="Anchor that an earlier verify printed", show_default=False)
    ] = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Verify the audit log.

    Follows the chain of hashes through all entries and reports the first entry that was changed.
    The chain detects changed, inserted, moved and removed entries. A removed end is detected only
    with an anchor that is stored elsewhere. Keep the anchor that this command prints, and pass it
    with --anchor.

    Examples:
        redrive audit verify
        redrive audit verify --anchor 1204:9f86d0...

    Exit codes:
        0: unchanged
        1: changed
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        chain = ops.audit.verify(anchor)
    if as_json:
        print_json(document(chain) | {"holds": chain.holds})
    elif chain.holds:
        entries = pluralise(chain.entries, "entry", "entries")
        show(console(), Text(f"Audit log unchanged: {entries}.\nAnchor: {chain.anchor}"))
    else:
        good = pluralise(chain.entries, "entry", "entries")
        said = f"Audit log changed at entry {chain.broken} ({chain.problem}); {good} before it unchanged."
        show(console(), Text(said, style="bold red"))
    raise typer.Exit(0 if chain.holds else NOT_DONE)
