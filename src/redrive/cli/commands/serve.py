"""`redrive serve`: the web console."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal, NoReturn

import typer
from rich.text import Text

from ...errors import LedgerError
from ...ops.operator import Operator
from ...ops.secret import SHORTEST_PASSWORD, Password, hashed_token, new_token
from ...ops.settings import known, warnings
from ...ops.target.imported import Unreadable
from ...ops.target.operated import operated
from ..options import NO_LEDGER, Where, option
from ..render.output import BAD_INPUT, complain, complain_of, console, print_json, show

EXTRA = frozenset(("fastapi", "jinja2", "uvicorn", "starlette"))


def serve(
    app: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="App in your code, or address of its ledger", show_default=False),
    ] = None,
    host: Annotated[str | None, option("--host", "ADDRESS", "Address to listen on (default: 127.0.0.1)")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, metavar="N", show_default=False,
            help="Port to listen on (0: any free port, default: 8321)",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Read access only, for all users")] = False,
    hash_: Annotated[
        Literal["password", "token"] | None,
        typer.Option(
            "--hash", show_default=False,
            help="Hash of a typed password, or a new token with its hash, instead of serving",
        ),
    ] = None,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Output as one JSON document at the start")] = False,
) -> None:  # fmt: skip
    """Serve the web console and the REST API.

    The console does what these commands do. The REST API is under /api.

    On 127.0.0.1 the printed address contains a token, so that other accounts of the machine have no
    access. Any other address needs a password or a token. REDRIVE_CONSOLE_PASSWORD and
    REDRIVE_CONSOLE_TOKEN are for operators. REDRIVE_CONSOLE_VIEWER_PASSWORD and
    REDRIVE_CONSOLE_VIEWER_TOKEN allow read access only. redrive.toml takes hashes, which --hash
    prints. No option takes a secret, because other accounts can read the process list.

    Examples:
        redrive serve shop:app
        redrive serve --ledger sqlite:///shop.db --port 8400
        redrive serve --hash password

    Exit codes:
        0: printed, or stopped by SIGTERM or Ctrl+C
        2: invalid option, unknown app, missing extra, or address not available
        3: ledger not reachable, or its schema is from another version
    """
    if hash_ is not None:
        _hash(hash_, as_json)
        return
    try:
        from ...console.security.credentials import Access  # noqa: PLC0415  # the extra may be missing
        from ...console.server import Exposed, address_of, bound, checked  # noqa: PLC0415  # likewise
        from ...console.server import serve as run  # noqa: PLC0415  # likewise
    except ModuleNotFoundError as missing:
        if missing.name not in EXTRA:
            raise
        _leave('console: not installed; pip install "redrive[console]"')
    try:
        set_ = known()
        told = set_.console
        for name, wrong in warnings(set_).items():
            complain(f"{name} {wrong}")
        access = Access(
            password=told.password, token=told.token, viewer_password=told.viewer_password, viewer_token=told.viewer_token,
            secret=told.secret, read_only=read_only or told.read_only,
        )  # fmt: skip
        at = host or told.host
        checked(at, access)
        with operated(app or where) as found, bound(at, told.port if port is None else port) as listening:
            facts = {
                "event": "started", "url": address_of(listening), "ledger": Operator(found, actor="console").url,
                "guarded": access.guarded, "read_only": access.read_only,
            }  # fmt: skip
            if not access.guarded:
                facts["token"] = access.local_token
            run(found, access, listening, begun=lambda: _said(facts, as_json), proxies=",".join(told.proxies))
    except Exposed as refused:
        _leave(str(refused), "set REDRIVE_CONSOLE_PASSWORD or REDRIVE_CONSOLE_TOKEN")
    except LedgerError as problem:
        complain_of(problem)
        raise typer.Exit(NO_LEDGER) from None
    except OSError as taken:
        _leave(f"console: cannot listen there ({taken.strerror or taken}); --port 0 takes any free port")
    except (Unreadable, ValueError) as wrong:
        _leave(str(wrong))


def _hash(what: Literal["password", "token"], as_json: bool) -> None:
    if what == "token":
        token = new_token()
        made = {"token": token, "hash": hashed_token(token)}
    else:
        made = {"hash": str(Password.create(_asked()))}
    if as_json:
        print_json(made)
    elif "token" in made:
        show(console(), Text(f"token  {made['token']}\nhash   {made['hash']}"))
    else:
        print(made["hash"])  # alone and in one line, for `$(...)`


def _asked() -> str:
    """A password that somebody types twice and nobody sees; from a pipe, its first line."""
    if sys.stdin.isatty():
        given: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        given = sys.stdin.readline().rstrip("\r\n")
    if len(given) < SHORTEST_PASSWORD:
        _leave(f"password: too short; use at least {SHORTEST_PASSWORD} characters")
    return given


def _leave(message: str, *hints: str) -> NoReturn:
    complain(message, *hints)
    raise typer.Exit(BAD_INPUT) from None


def _said(facts: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts), flush=True)
        return
    access = "password or token required" if facts["guarded"] else "this machine only"
    only = ", read-only" if facts["read_only"] else ""
    address = facts["url"] if facts["guarded"] else f"{facts['url']}?token={facts['token']}"
    show(console(), Text(f"Console for {facts['ledger']}: {address} ({access}{only}). Ctrl+C stops it."))
