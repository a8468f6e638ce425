"""`redrive serve`: the web console."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal, NoReturn

import typer
from rich.text import Text

from ..errors import LedgerError
from ..ops.imported import Unreadable
from ..ops.operated import operated
from ..ops.operator import Operator
from ..ops.secret import SHORTEST_PASSWORD, Password, hashed_token, new_token
from ..ops.settings import known, warnings
from .options import NO_LEDGER, Where, option
from .output import BAD_INPUT, complain, console, print_json, show

EXTRA = frozenset(("fastapi", "jinja2", "uvicorn", "starlette"))


def serve(
    app: Annotated[
        str | None,
        typer.Argument(metavar="MODULE:APP", help="The App in your code, or its ledger's address.", show_default=False),
    ] = None,
    host: Annotated[str | None, option("--host", "ADDRESS", "At this address. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, metavar="N", help="At this port; 0: any. Default: 8321.", show_default=False),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nobody may act, only look.")] = False,
    hash_: Annotated[
        Literal["password", "token"] | None,
        typer.Option(
            "--hash", show_default=False,
            help="Serve nothing: print the hash of a password that is asked for, or a new token with its hash.",
        ),
    ] = None,
    where: Where = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document when it is there.")] = False,
) -> None:  # fmt: skip
    """Serve the web console: all that these commands do, in a browser, and a REST API under /api.

    On 127.0.0.1 the printed address holds a token, which other accounts of the machine lack. Any other address needs a password
    or a token: REDRIVE_CONSOLE_PASSWORD and REDRIVE_CONSOLE_TOKEN for those who may act, REDRIVE_CONSOLE_VIEWER_PASSWORD and
    REDRIVE_CONSOLE_VIEWER_TOKEN for those who may look; or redrive.toml, hashed: `--hash password` asks for one and prints its
    hash (a script gives it on standard input), `--hash token` draws one. Never as an option: others could see it in the list of
    processes.

    Exit status: 0, printed, or stopped by SIGTERM or Ctrl+C; 2, a wrong option, no such app, no extra, or an address that is not
    to be had; 3, the ledger cannot be reached or has another schema.
    """
    if hash_ is not None:
        _hash(hash_, as_json)
        return
    try:
        from ..console.access import Access  # noqa: PLC0415  # the extra may be missing
        from ..console.server import Exposed, address_of, bound, checked  # noqa: PLC0415  # likewise
        from ..console.server import serve as run  # noqa: PLC0415  # likewise
    except ModuleNotFoundError as missing:
        if missing.name not in EXTRA:
            raise
        _leave('the console needs its extra: pip install "redrive[console]"')
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
        _leave(str(refused), "REDRIVE_CONSOLE_PASSWORD or REDRIVE_CONSOLE_TOKEN sets one")
    except LedgerError as problem:
        complain(str(problem), *getattr(problem, "__notes__", ()))
        raise typer.Exit(NO_LEDGER) from None
    except OSError as taken:
        _leave(f"the console cannot be served there: {taken.strerror or taken}", "--port 0 takes any port that is free")
    except (Unreadable, ValueError) as wrong:
        _leave(str(wrong))


def _hash(what: Literal["password", "token"], as_json: bool) -> None:
    if what == "token":
        token = new_token()
        made = {"token": token, "hash": hashed_token(token)}
    else:
        made = {"hash": str(Password.made(_asked()))}
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
        _leave(f"a password has at least {SHORTEST_PASSWORD} characters")
    return given


def _leave(message: str, *hints: str) -> NoReturn:
    complain(message, *hints)
    raise typer.Exit(BAD_INPUT) from None


def _said(facts: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts), flush=True)
        return
    asks = "asks for a password or a token" if facts["guarded"] else "answers to this machine only"
    only = "; nobody may act" if facts["read_only"] else ""
    address = facts["url"] if facts["guarded"] else f"{facts['url']}?token={facts['token']}"
    show(console(), Text(f"The console of {facts['ledger']} is at {address} and {asks}{only}. Ctrl+C ends it."))
