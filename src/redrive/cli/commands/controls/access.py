"""`redrive tokens` and `redrive sessions`: who has access to the web console."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import typer

from ....core.text import pluralise
from ....ops.render import ago, document, parse_future_time, utc
from ....ops.sign_in.sessions import SessionLine
from ....ops.sign_in.tokens import NewToken, TokenLine
from ...command import CommandGroup
from ...errors import refuse_option
from ...options import ReadOptions, WriteOptions, argument, open_operator, option
from ...render import Column, print_json, print_rows, show

tokens = CommandGroup(help="Create and revoke tokens of the console.")
sessions = CommandGroup(help="List and revoke sessions of the console.")
NEVER = "never"

TokenName = Annotated[str, argument("NAME", "Name of the token, such as deploy-bot")]


@tokens.command("create")
def create(
    *,
    name: TokenName,
    role: Annotated[
        Literal["viewer", "operator"],
        typer.Option("--role", help="Access: viewer reads, operator also acts"),
    ] = "viewer",
    acts: Annotated[
        list[str] | None,
        option("--act", "NAME", "Allow only this act, such as replay. Repeat it for several"),
    ] = None,
    job_types: Annotated[
        list[str] | None,
        option("--job-type", "NAME", "Allow only this job type, or pattern such as 'orders.*'"),
    ] = None,
    expires: Annotated[
        str, option("--expires", "WHEN", "Expiry, such as 12h, 90d or never (default: 90d)")
    ] = "90d",
    because: Annotated[
        str, option("--because", "TEXT", "Reason recorded in the audit log")
    ] = "token created",
    options: WriteOptions,
) -> None:
    """Create a token for a program.

    The token is printed once. The ledger stores only its hash. The audit log records the actions
    of the program under the name of the token. With --act, the token may do these acts and read.

    Examples:
        redrive tokens create prometheus
        redrive tokens create deploy-bot --act replay --job-type 'orders.*' --expires 90d

    Exit codes:
        0: created
        1: a valid token of this name exists
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        made = ops.tokens.create(
            name,
            role=role,
            acts=acts or None,
            job_types=job_types or None,
            expires_at=_expiry(expires, ops.now()),
            because=because,
        )
    if options.as_json:
        print_json({"token": made.token, **document(made.line)})
    else:
        show(_describe(made))
        print(made.token)  # alone on its line, for `| tail -1`


@tokens.command("list")
def list_tokens(*, options: ReadOptions) -> None:
    """List tokens of the console.

    Examples:
        redrive tokens list

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        lines, now = ops.tokens.find(), ops.now()
    print_rows(lines, options.as_json, _token_columns(now), empty="No tokens.")


@tokens.command("revoke")
def revoke_token(
    *,
    name: TokenName,
    because: Annotated[
        str, option("--because", "TEXT", "Reason recorded in the audit log")
    ] = "token revoked",
    options: WriteOptions,
) -> None:
    """Revoke a token of the console.

    Every console rejects the token within two seconds.

    Examples:
        redrive tokens revoke deploy-bot --because "leaked in a log"

    Exit codes:
        0: revoked
        1: no such token, or revoked already
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        ops.tokens.revoke(name, because=because)
    if options.as_json:
        print_json({"revoked": name})
    else:
        show(f"Revoked token {name}.")


@sessions.command("list")
def list_sessions(
    *,
    user: Annotated[str | None, option("--user", "NAME", "Only sessions of this person")] = None,
    options: ReadOptions,
) -> None:
    """List open sessions of the console.

    Examples:
        redrive sessions list
        redrive sessions list --user ann

    Exit codes:
        0: listed, also when there are none
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    with open_operator(options) as ops:
        lines, now = ops.sessions.find(user=user), ops.now()
    print_rows(lines, options.as_json, _session_columns(now), empty="No sessions.")


@sessions.command("revoke")
def revoke_sessions(
    *,
    user: Annotated[str | None, option("--user", "NAME", "All sessions of this person")] = None,
    session_id: Annotated[str | None, option("--id", "ID", "The session with this id")] = None,
    because: Annotated[
        str, option("--because", "TEXT", "Reason recorded in the audit log")
    ] = "sessions revoked",
    options: WriteOptions,
) -> None:
    """Revoke sessions of the console.

    Every console rejects the sessions within two seconds. The person can sign in again, unless the
    password or the account has changed.

    Examples:
        redrive sessions revoke --user ann --because "lost laptop"
        redrive sessions revoke --id 3f9a2b

    Exit codes:
        0: revoked
        1: no session matches
        2: invalid option
        3: ledger not reachable, or its schema is from another version
    """
    if (user is None) == (session_id is None):
        refuse_option("--user, --id", "pass one of them")
    with open_operator(options) as ops:
        count = ops.sessions.revoke(user=user, session_id=session_id, because=because)
    if options.as_json:
        print_json({"revoked": count})
    else:
        show(f"Revoked {pluralise(count, 'session')}.")


def _expiry(text: str, now: datetime) -> datetime | None:
    if text.strip().lower() == NEVER:
        return None
    try:
        return parse_future_time(text, now)
    except ValueError as error:
        refuse_option("--expires", f"{error}, or never")


def _describe(made: NewToken) -> str:
    line = made.line
    ends = "never expires" if line.expires_at is None else f"expires {utc(line.expires_at)} UTC"
    return f"Created token {line.name}: {_rights(line)}, {ends}. It is printed only once:"


def _rights(line: TokenLine) -> str:
    if line.role == "viewer":
        acts = "reads"
    else:
        acts = "all acts" if line.acts is None else ", ".join(line.acts) or "no acts"
    where = "" if line.job_types is None else f" of {', '.join(line.job_types)}"
    return f"{acts}{where}"


def _token_columns(now: datetime) -> list[Column[TokenLine]]:
    return [
        Column("name", lambda line: line.name, min_width=10),
        Column("rights", _rights, min_width=12),
        Column("state", lambda line: line.state),
        Column(
            "expires",
            lambda line: NEVER if line.expires_at is None else f"{utc(line.expires_at)} UTC",
        ),
        Column("created", lambda line: ago(line.created_at, now)),
        Column("by", lambda line: line.created_by),
    ]


def _session_columns(now: datetime) -> list[Column[SessionLine]]:
    return [
        Column("id", lambda line: line.id, min_width=12),
        Column("user", lambda line: line.user, min_width=8),
        Column("role", lambda line: line.role),
        Column("via", lambda line: line.via),
        Column("started", lambda line: ago(line.started_at, now)),
        Column("expires", lambda line: f"{utc(line.expires_at)} UTC"),
    ]
