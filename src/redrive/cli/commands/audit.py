"""`redrive audit`: list and verify the audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from ...core.text import pluralise
from ...ops.audit import Decision
from ...ops.render import ago, document, utc
from ..command import CommandGroup
from ..errors import NOT_DONE
from ..options import (
    ReadOptions,
    Since,
    Until,
    flag,
    limit_option,
    open_operator,
    option,
    time_range,
)
from ..render import Column, print_json, print_table, show, showing
from ..suggestions import expand_commands

app = CommandGroup(help="List and verify the audit log.")

HIDDEN = "Automatic entries are hidden; `redrive audit list --all` includes them."
MAX_SUBJECT_CHARS = 50
"""Characters of the names of a decision that are printed, unless one name is longer."""
MAX_DETAIL_CHARS = 100
"""Characters of the details of a decision that are printed. --json has all of them."""
MAX_SUBJECTS = 3


@app.command("list")
def list_(
    *,
    by: Annotated[str | None, option("--by", "ACTOR", "Only decisions of this name")] = None,
    action: Annotated[
        str | None,
        option(
            "--action", "NAME", "Only this action, such as dead.replay, or dead for all of them"
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    include_automatic: Annotated[
        bool, flag("--all", "Include automatic decisions of policies")
    ] = False,
    _people: Annotated[bool, typer.Option("--people", hidden=True, help="The default")] = False,
    limit: Annotated[int, limit_option("decisions")] = 50,
    options: ReadOptions,
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
    with open_operator(options) as ops:
        selection: dict[str, Any] = {"actor": by, "action": action, **time_range(since, until)}
        decisions = ops.audit.find(**selection, limit=limit, people=not include_automatic)
        if options.as_json:
            print_json(decisions)
        elif decisions:
            cut = showing(limit) if len(decisions) == limit else None
            hidden = None
            if not include_automatic:
                numbers = {entry.number for entry in ops.audit.find(**selection, limit=limit)}
                has_gaps = numbers - {entry.number for entry in decisions}
                hidden = expand_commands(HIDDEN) if has_gaps else None
            print_table(_columns(ops.now()), decisions, below=[cut, hidden])
        else:
            is_filtered = any(value is not None for value in (by, action, since, until))
            none = "No decision matches." if is_filtered else "No decisions."
            automatic = "`redrive audit list --all` includes automatic ones."
            show(none if include_automatic else expand_commands(f"{none} {automatic}"))


def _columns(now: datetime) -> list[Column[Decision]]:
    return [
        Column("number", lambda entry: str(entry.number), is_number=True),
        Column("when", lambda entry: ago(entry.at, now)),
        Column("UTC", lambda entry: utc(entry.at), drop_order=1),
        Column("by", lambda entry: entry.actor, min_width=8),
        Column("via", lambda entry: entry.via, drop_order=2),
        Column("action", _action, min_width=16),
        Column("because", lambda entry: entry.because, min_width=20),
    ]


def _action(entry: Decision) -> str:
    return f"{entry.action} {_subject(entry.what)}".strip()


def _subject(detail: Mapping[str, Any]) -> str:
    """Return the subject of a decision in a few words."""
    partitions = detail.get("partitions")
    if isinstance(partitions, list) and partitions:  # Their names are long.
        others = detail.get("count", len(partitions)) - 1
        return f"{partitions[0]}" + (f" and {others:,} more" if others else "")
    ids = detail.get("jobs") or detail.get("letters") or detail.get("items")
    if isinstance(ids, (dict, list)):
        batch = f"{detail['batch']}: " if "batch" in detail else ""
        names = list(map(str, ids))[:MAX_SUBJECTS]
        while len(names) > 1 and len(", ".join(names)) > MAX_SUBJECT_CHARS:
            names.pop()
        hidden = max(len(ids), detail.get("count", 0)) - len(names)
        return batch + ", ".join(names) + (f" and {hidden:,} more" if hidden else "")
    if "kind" in detail:
        return (
            f"{detail['kind']} ({detail['signature']})"
            if "signature" in detail
            else str(detail["kind"])
        )
    if "partition" in detail:
        return (
            f"{detail['partition']} to run {detail['to']}"
            if "to" in detail
            else str(detail["partition"])
        )
    if "sweep" in detail:
        noun = "dead letter" if "letters" in detail else "partition"
        count = f", {pluralise(detail['count'], noun)}" if "count" in detail else ""
        return f"sweep {detail['sweep']}{count}"
    if "key" in detail:
        return str(detail["key"])
    if "scope" in detail:  # of a pause by hand
        return f"{detail['scope']} {detail.get('name', '')}".strip()
    if "schedule" in detail:
        return str(detail["schedule"])
    text = json.dumps(document(detail), ensure_ascii=False) if detail else ""
    return text if len(text) <= MAX_DETAIL_CHARS else text[:MAX_DETAIL_CHARS] + "…"


@app.command()
def verify(
    *,
    anchor: Annotated[
        str | None, option("--anchor", "N:HASH", "Anchor that an earlier verify printed")
    ] = None,
    options: ReadOptions,
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
    with open_operator(options) as ops:
        chain = ops.audit.verify(anchor)
    entries = pluralise(chain.entries, "entry", "entries")
    if options.as_json:
        print_json(document(chain) | {"holds": chain.holds})
    elif chain.holds:
        show(f"Audit log unchanged: {entries}.\nAnchor: {chain.anchor}")
    else:
        place = f"entry {chain.broken} ({chain.problem})"
        show(f"Audit log changed at {place}; {entries} before it unchanged.", style="bold red")
    raise typer.Exit(0 if chain.holds else NOT_DONE)
