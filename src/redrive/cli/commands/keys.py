"""`redrive keys`: idempotency keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.text import Text

from ...ops.keys import HeldKey, KeyReport
from ...ops.render import document
from ..choices import RECORD, state_option
from ..command import Commands
from ..options import NOT_DONE, Actor, AsJson, Because, Where, operator
from ..render.details import showing
from ..render.moments import ago, both
from ..render.output import complain, console, heading, pairs, print_json, show
from ..render.suggestions import spelled
from ..render.table import Column, fitted

app = Commands(help="List and release idempotency records.")

Name = Annotated[str, typer.Argument(metavar="KEY", help="Idempotency key, as domain:user:entity:operation:version")]


@app.command("list")
def list_(
    domain: Annotated[str | None, typer.Option("--domain", metavar="NAME", help="Only this domain", show_default=False)] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only this user", show_default=False)] = None,
    status: Annotated[
        Literal["processing", "completed", "failed"] | None,
        state_option("--status", RECORD, "Only this status"),
    ] = None,
    abandoned: Annotated[bool, typer.Option("--abandoned", help="Only records whose holder crashed")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum number of records")] = 50,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """List idempotency records.

    An idempotency record stores the response of an operation under its idempotency key. Sorted by
    key. Job keys are listed by `redrive jobs list`.

    Examples:
        redrive keys list
        redrive keys list --domain shop --status failed
        redrive keys list --abandoned

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        found = ops.keys.find(domain=domain, user=user, status=status, abandoned=abandoned, limit=limit)
        if as_json:
            print_json(document(found))
            return
        out = console()
        if found:
            show(out, _keys(found, ops.now(), out.width, full=len(found) == limit))
        else:
            narrowed = abandoned or any(each is not None for each in (domain, user, status))
            none = "No idempotency records. Job keys are listed by `redrive jobs list`."
            show(out, Text("No idempotency record matches." if narrowed else spelled(none)))


def _keys(found: Sequence[HeldKey], now: datetime, width: int, *, full: bool) -> Group:
    columns = [
        Column("key", least=24),
        Column("status"),
        Column("updated"),
        Column("expires", leave=1),
        Column("holder", least=10, cut=True, leave=2),
    ]
    rows: list[dict[str, str | Text]] = [
        {
            "key": key.key,
            "status": Text("abandoned", style="red") if key.abandoned else key.status,
            "updated": ago(key.updated_at, now),
            "expires": ago(key.expires_at, now),
            "holder": (key.holder or "–") if key.status == "processing" else "–",
        }
        for key in found
    ]
    made = fitted(columns, rows, width)
    hint = showing(len(found)) if full else spelled("`redrive keys show KEY` shows one of them.")
    return Group(made, "", Text(hint, style="dim"))


@app.command("show")
def show_(key: Name, where: Where = None, as_json: AsJson = False) -> None:
    """Show one idempotency record.

    Shows its state, its holder, and the stored response or error. Secrets are hidden.

    Examples:
        redrive keys show shop:ann:o-1:charge:v1

    Exit codes:
        0: shown
        1: no record under this key
        2: invalid option, or not a valid key
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where) as ops:
        report = ops.keys.get(key)
        if report is None:
            complain(f"{key}: no idempotency record; the key is free")
            raise typer.Exit(NOT_DONE)
        if as_json:
            print_json(document(report))
            return
        show(console(), _report(report))


def _report(report: KeyReport) -> Group:
    key, now = report.key, report.now
    made = pairs()
    made.add_row("status", f"{key.status}, abandoned (the next caller takes over)" if key.abandoned else key.status)
    made.add_row("started", both(key.created_at, now))
    made.add_row("updated", both(key.updated_at, now))
    if key.status == "processing":
        made.add_row("holder", key.holder or "–")
        made.add_row("lease until", both(key.lease_until, now))
    made.add_row("expires", both(key.expires_at, now))
    if report.response_bytes is not None:
        said = report.response if isinstance(report.response, str) else json.dumps(report.response, indent=2, ensure_ascii=False)
        made.add_row("response", said)
    if report.error is not None:
        made.add_row("error", ": ".join(str(report.error[name]) for name in ("type", "message") if report.error.get(name)))
    if report.request_hash is not None:
        made.add_row("request", report.request_hash[:16] + "…")
    return Group(heading(key.key), made)


@app.command()
def release(
    key: Name,
    because: Because,
    force: Annotated[bool, typer.Option("--force", help="Also while the operation is running, which may run it twice")] = False,
    actor: Actor = None,
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Delete one idempotency record.

    The next caller runs the operation again, even if a response is stored. The audit log records
    the release.

    Examples:
        redrive keys release shop:ann:o-1:charge:v1 --because "INC-42"

    Exit codes:
        0: released
        1: no record under this key, or the operation is running
        2: invalid option, not a valid key, or no reason
        3: ledger not reachable, or its schema is from another version
    """
    with operator(where, actor) as ops:
        released = ops.keys.release(key, because=because, force=force)
        if as_json:
            print_json(document(released))
        else:
            show(console(), Text(f"Released: {released.key} (was {'abandoned' if released.abandoned else released.status})"))
