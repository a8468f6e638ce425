"""`redrive keys`: list, show and release idempotency records."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import Group
from rich.text import Text

from ...ops.keys import HeldKey, KeyReport
from ...ops.render import ago, both
from ..command import CommandGroup
from ..errors import NOT_DONE, fail
from ..options import (
    KEY_STATES,
    Because,
    ReadOptions,
    WriteOptions,
    flag,
    limit_option,
    open_operator,
    option,
    state_option,
)
from ..render import Column, FieldValue, fields, heading, print_result, print_rows, showing
from ..suggestions import expand_commands

app = CommandGroup(help="List and release idempotency records.")

Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="Idempotency key, as domain:user:entity:operation:version"),
]
NO_KEYS = "No idempotency records. Job keys are listed by `redrive jobs list`."


@app.command("list")
def list_(
    *,
    domain: Annotated[str | None, option("--domain", "NAME", "Only this domain")] = None,
    user: Annotated[str | None, option("--user", "NAME", "Only this user")] = None,
    status: Annotated[
        Literal["processing", "completed", "failed"] | None,
        state_option("--status", KEY_STATES, "Only this status"),
    ] = None,
    abandoned: Annotated[bool, flag("--abandoned", "Only records whose holder crashed")] = False,
    limit: Annotated[int, limit_option("records")] = 50,
    options: ReadOptions,
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
    with open_operator(options) as ops:
        keys = ops.keys.find(
            domain=domain, user=user, status=status, abandoned=abandoned, limit=limit
        )
        hint = expand_commands("`redrive keys show KEY` shows one of them.")
        note = showing(limit) if len(keys) == limit else hint
        is_filtered = abandoned or domain is not None or user is not None or status is not None
        empty = "No idempotency record matches." if is_filtered else expand_commands(NO_KEYS)
        now = ops.now()
    print_rows(keys, options.as_json, _columns(now), empty=empty, below=[note])


def _columns(now: datetime) -> list[Column[HeldKey]]:
    return [
        Column("key", lambda key: key.key, min_width=24),
        Column("status", _status),
        Column("updated", lambda key: ago(key.updated_at, now)),
        Column("expires", lambda key: ago(key.expires_at, now), drop_order=1),
        Column("holder", _holder, min_width=10, truncate=True, drop_order=2),
    ]


def _status(key: HeldKey) -> str | Text:
    return Text("abandoned", style="red") if key.abandoned else key.status


def _holder(key: HeldKey) -> str | None:
    return (key.holder or None) if key.status == "processing" else None


@app.command("show")
def show_(*, key: Key, options: ReadOptions) -> None:
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
    with open_operator(options) as ops:
        report = ops.keys.get(key)
    if report is None:
        fail(NOT_DONE, f"{key}: no idempotency record; the key is free")
    print_result(report, options.as_json, _report)


def _report(report: KeyReport) -> Group:
    key, now, error = report.key, report.now, report.error or {}
    is_held = key.status == "processing"
    abandoned = ", abandoned (the next caller takes over)" if key.abandoned else ""
    has_response = report.response_bytes is not None
    messages = [str(error[name]) for name in ("type", "message") if error.get(name)]
    values: dict[str, FieldValue] = {
        "status": f"{key.status}{abandoned}",
        "started": both(key.created_at, now),
        "updated": both(key.updated_at, now),
        "holder": (key.holder or "–") if is_held else None,
        "lease until": both(key.lease_until, now) if is_held else None,
        "expires": both(key.expires_at, now),
        "response": _response(report.response) if has_response else None,
        "error": None if report.error is None else ": ".join(messages),
        "request": None if report.request_hash is None else f"{report.request_hash[:16]}…",
    }
    return Group(heading(key.key), fields(values))


def _response(response: object) -> str:
    is_text = isinstance(response, str)
    return str(response) if is_text else json.dumps(response, indent=2, ensure_ascii=False)


@app.command()
def release(
    *,
    key: Key,
    because: Because,
    force: Annotated[
        bool, flag("--force", "Also while the operation is running, which may run it twice")
    ] = False,
    options: WriteOptions,
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
    with open_operator(options) as ops:
        released = ops.keys.release(key, because=because, force=force)
    state = "abandoned" if released.abandoned else released.status
    print_result(released, options.as_json, lambda key: f"Released: {key.key} (was {state})")
