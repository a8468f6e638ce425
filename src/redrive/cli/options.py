"""Options that many commands have, and how each of them gets its operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import typer

from ..errors import Drift, LedgerError, NotAllowed
from ..ops.actor import user
from ..ops.operator import Operator
from ..ops.target import operated
from ..ops.user_code import Unreadable
from .render.moments import moment
from .render.output import BAD_INPUT, complain, complain_of
from .render.suggestions import given

NOT_DONE = 1
"""Not done completely, or not found."""
NO_LEDGER = 3
"""The ledger is not reachable, or its schema is from another version."""
DRIFTED = 4
"""The data changed since the plan; nothing was done."""
INTERRUPTED = 130


def option(name: str, metavar: str, help_: str) -> Any:
    """An option that takes a value, and has no default worth a word."""
    return typer.Option(name, metavar=metavar, help=help_, show_default=False)


def _ledger(address: str | None) -> str | None:
    """What --ledger says; an empty one, such as an unset variable, would silently mean the default ledger."""
    if address is not None and not address.strip():
        raise typer.BadParameter("empty; pass an address or module:app, or leave the option out")
    return given(address)


ADDRESSES = "Ledger, as sqlite:///file.db, postgresql://user@host/db or module:app (default: $REDRIVE_LEDGER, redrive.toml, sqlite:///redrive.db)"
Where = Annotated[
    str | None, typer.Option("--ledger", metavar="URL", help=ADDRESSES, show_default=False, callback=_ledger, is_eager=True)
]
Named = Annotated[
    str | None, typer.Argument(metavar="MODULE:APP", help="App in your code, or address of its ledger", show_default=False)
]
HeartbeatTimeout = Annotated[
    float,
    typer.Option(
        "--heartbeat-timeout",
        min=1,
        metavar="SECONDS",
        help="Seconds without a heartbeat until a worker is offline",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Output as one JSON document")]
Actor = Annotated[str | None, option("--actor", "NAME", "Name recorded in the audit log (default: your user name)")]
Because = Annotated[str, option("--because", "TEXT", "Reason recorded in the audit log")]
BecauseRaw = Annotated[str | None, option("--because", "TEXT", "Reason recorded in the audit log, with --raw")]
Kind = Annotated[str | None, option("--kind", "NAME", "Only this job type")]
Error = Annotated[str | None, option("--error", "TEXT", "Only errors that contain this text")]
Reason = Annotated[str | None, option("--reason", "NAME", "Only this reason, such as attempts or not_retryable")]
Since = Annotated[str | None, option("--since", "WHEN", "Only since this time, such as 30min, 12h, 7d or 2026-01-31T12:30 (UTC)")]
Until = Annotated[str | None, option("--until", "WHEN", "Only before this time, in the same forms as --since")]


def where_of(named: str | None, where: str | None) -> str | None:
    """The ledger that an argument or --ledger names. Both are possible only if they are the same."""
    if named and where and named != where:
        raise typer.BadParameter("pass the ledger once: as an argument or as --ledger", param_hint="MODULE:APP")
    return given(named or where)


def since_of(text: str | None, option_: str = "--since") -> datetime | None:
    """The moment that --since says."""
    if text is None:
        return None
    try:
        return moment(text)
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint=option_) from None


def times_of(since: str | None, until: str | None) -> dict[str, datetime | None]:
    """The times that --since and --until say, by name."""
    first, last = since_of(since), since_of(until, "--until")
    if first is not None and last is not None and last <= first:
        raise typer.BadParameter(f"{until} is not after --since {since}", param_hint="--until")
    return {"since": first, "until": last}


@contextmanager
def operator(where: str | None, actor: str | None = None, *, app_first: bool = False, create: bool = False) -> Iterator[Operator]:
    """The operator of the ledger that was named. What goes wrong is one line and an exit status, never a traceback.

    app_first, create: as `operated` has them.
    """
    with complaints(), operated(where, app_first=app_first, create=create) as app:
        yield Operator(app, actor=user() if actor is None else actor)


@contextmanager
def complaints() -> Iterator[None]:
    """Turn every expected error of a command into one line and an exit status."""
    try:
        yield
    except LedgerError as problem:
        complain_of(problem)
        raise typer.Exit(NO_LEDGER) from None
    except Drift as moved:
        complain(str(moved))
        raise typer.Exit(DRIFTED) from None
    except NotAllowed as refused:
        complain(str(refused))
        raise typer.Exit(NOT_DONE) from None
    except UnicodeEncodeError as wrong:
        complain(f"{wrong.object!r}: not valid UTF-8 at {wrong.object[wrong.start]!r}")
        raise typer.Exit(BAD_INPUT) from None
    except (Unreadable, ValueError) as wrong:
        complain(str(wrong))
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt:
        complain("interrupted; completed steps stay, and are in the audit log")
        raise typer.Exit(INTERRUPTED) from None
