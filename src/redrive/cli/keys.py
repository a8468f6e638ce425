"""`redrive keys`: idempotency keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.text import Text

from ..ops.document import document
from ..ops.keys import HeldKey, KeyReport
from .fit import Column, fitted
from .followup import spelled
from .moments import ago, both
from .options import NOT_DONE, Actor, AsJson, Because, Where, operator
from .output import complain, console, heading, pairs, print_json, show

app = typer.Typer(no_args_is_help=True, help="Idempotency keys: list them, look at one, release one.")

Name = Annotated[str, typer.Argument(metavar="KEY", help="The key: domain:user:entity:operation:version.")]


@app.command("list")
def list_(
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only this domain.", show_default=False)] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only this user's.", show_default=False)] = None,
    status: Annotated[
        Literal["processing", "completed", "failed"] | None,
        typer.Option("--status", help="Only in this state.", show_default=False),
    ] = None,
    abandoned: Annotated[bool, typer.Option("--abandoned", help="Only those whose holder has crashed.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 50,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List idempotency keys, by their names.

    Exit status: 0, listed, also where there are none; 2, a wrong option; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        found = ops.keys(domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            show(out, _keys(found, ops.now(), out.width, full=len(found) == limit))
        else:
            narrowed = abandoned or any(each is not None for each in (domain, user, status))
            show(out, Text("no key matches" if narrowed else "no keys: nothing was done under one yet, or their time is over"))


def _keys(found: Sequence[HeldKey], now: datetime, width: int, *, full: bool) -> Group:
    columns = [
        Column("key", least=24),
        Column("status"),
        Column("changed"),
        Column("kept until", leave=1),
        Column("holder", least=10, cut=True, leave=2),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "key": key.key,
            "status": Text("abandoned", style="red") if key.abandoned else key.status,
            "changed": ago(key.updated_at, now),
            "kept until": ago(key.expires_at, now),
            "holder": (key.holder or "–") if key.status == "processing" else "–",
        }
        for key in found
    ]
    made = fitted(columns, rows, width)
    hint = "More may match: raise --limit, or narrow it down." if full else spelled("`redrive keys show KEY` for one of them.")
    return Group(made, "", Text(hint, style="dim"))


@app.command("show")
def show_(key: Name, where: Where = None, as_json: AsJson = False) -> None:
    """Show one key: its state, its holder, and the stored answer or failure, without secrets.

    Exit status: 0, shown; 1, nothing is stored under it; 2, it is no key; 3, the ledger cannot be reached or has another schema.
    """
    with operator(where) as ops:
        report = ops.key(key)
        if report is None:
            complain(f"nothing is stored under {key}: it is free")
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(report))
            return
        show(console(), _report(report))


def _report(report: KeyReport) -> Group:
    key, now = report.key, report.now
    made = pairs()
    made.add_row("status", f"{key.status}, abandoned: the next caller takes it over" if key.abandoned else key.status)
    made.add_row("begun", both(key.created_at, now))
    made.add_row("changed", both(key.updated_at, now))
    if key.status == "processing":
        made.add_row("holder", key.holder or "–")
        made.add_row("lease until", both(key.lease_until, now))
    made.add_row("kept until", both(key.expires_at, now))
    if report.response_bytes is not None:
        said = report.response if isinstance(report.response, str) else json.dumps(report.response, indent=2, ensure_ascii=False)
        made.add_row("answer", said)
    if report.error is not None:
        made.add_row("failure", ": ".join(str(report.error[name]) for name in ("type", "message") if report.error.get(name)))
    if report.request_hash is not None:
        made.add_row("request", report.request_hash[:16] + "…")
    return Group(heading(key.key), made)


@app.command()
def release(
    key: Name,
    because: Because,
    force: Annotated[bool, typer.Option("--force", help="Even where somebody is at it right now.")] = False,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Forget what is known of a key: the next caller begins anew. Recorded in the audit.

    A stored answer is forgotten too, and the work is done again when somebody asks for it.

    Exit status: 0, released; 1, there is none, or somebody is at it right now; 2, it is no key, or no reason was given; 3, the
    ledger cannot be reached or has another schema.
    """
    with operator(where, actor) as ops:
        released = ops.release(key, because=because, force=force)
        if as_json:
            print_json(document(released))
        else:
            show(console(), Text(f"Released: {released.key} (was {'abandoned' if released.abandoned else released.status})"))
