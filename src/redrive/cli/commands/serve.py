"""`redrive serve`: the web console and the REST API."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from ...console import CONSOLE_PACKAGES
from ...errors import LedgerError
from ...ops.operator import Operator
from ...ops.project.settings import known, warnings
from ...ops.project.target import open_served
from ...ops.project.user_code import Unreadable
from ...ops.sign_in.hashes import SHORTEST_PASSWORD, Password, hashed_token, new_token
from ..errors import BAD_INPUT, complain, fail, fail_without_ledger
from ..options import AppArgument, LedgerAddress, flag, option
from ..render import print_json, show


def serve(
    *,
    app: AppArgument = None,
    host: Annotated[
        str | None, option("--host", "ADDRESS", "Address to listen on (default: 127.0.0.1)")
    ] = None,
    port: Annotated[
        int | None,
        option(
            "--port", "N", "Port to listen on (0: any free port, default: 8321)", min=0, max=65535
        ),
    ] = None,
    read_only: Annotated[bool, flag("--read-only", "Read access only, for all users")] = False,
    proxy_header: Annotated[
        str | None,
        option("--proxy-header", "NAME", "Header in which a trusted proxy names the user"),
    ] = None,
    proxy_addresses: Annotated[
        list[str] | None,
        option("--proxy-address", "ADDRESS", "Address or network of this proxy. Repeatable"),
    ] = None,
    secret: Annotated[
        Literal["password", "token"] | None,
        typer.Option(
            "--hash",
            help="Hash of a typed password, or a new token with its hash, instead of serving",
            show_default=False,
        ),
    ] = None,
    target: LedgerAddress = None,
    as_json: Annotated[bool, flag("--json", "Output as one JSON document at the start")] = False,
) -> None:
    """Serve the web console and the REST API.

    The console does what these commands do. The REST API is under /api.

    On 127.0.0.1 the printed address contains a token, so that other accounts of the machine have no
    access. Any other address needs a password or a token. REDRIVE_CONSOLE_PASSWORD and
    REDRIVE_CONSOLE_TOKEN are for operators. REDRIVE_CONSOLE_VIEWER_PASSWORD and
    REDRIVE_CONSOLE_VIEWER_TOKEN allow read access only. redrive.toml takes hashes, which --hash
    prints. No option takes a secret, because other accounts can read the process list.

    A proxy that authenticates users names them in --proxy-header. The header is ignored in requests
    from any address but --proxy-address. REDRIVE_CONSOLE_OIDC_ISSUER and the settings beside it
    configure a provider of OpenID Connect.

    Examples:
        redrive serve shop:app
        redrive serve --ledger sqlite:///shop.db --port 8400
        redrive serve --hash password

    Exit codes:
        0: printed, or stopped by SIGTERM or Ctrl+C
        2: invalid option, unknown app, missing extra, or address not available
        3: ledger not reachable, or its schema is from another version
    """
    if secret is not None:
        _show_hash(secret, as_json)
        return
    try:
        # The extra may be missing.
        from ...console import server  # noqa: PLC0415
        from ...console.security.credentials import AccessControl  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in CONSOLE_PACKAGES:
            raise
        fail(BAD_INPUT, 'console: not installed; pip install "redrive[console]"')
    try:
        settings = known()
        console = settings.console
        for name, warning in warnings(settings).items():
            complain(f"{name} {warning}")
        if proxy_header is not None or proxy_addresses:
            console = replace(
                console,
                proxy_header=proxy_header or console.proxy_header,
                proxy_addresses=tuple(proxy_addresses or console.proxy_addresses),
            )
        sign_in = server.sign_in_from_settings(console)
        access = AccessControl(
            password=console.password,
            token=console.token,
            viewer_password=console.viewer_password,
            viewer_token=console.viewer_token,
            secret=console.secret,
            read_only=read_only or console.read_only,
            has_users=sign_in.has_users,
        )
        address = host or console.host
        server.check_exposure(address, access)
        with (
            open_served(app or target) as opened,
            server.bind(address, console.port if port is None else port) as listening,
        ):
            facts = {
                "event": "started",
                "url": server.url_of(listening),
                "ledger": Operator(opened, actor="console").url,
                "guarded": access.is_protected,
                "read_only": access.read_only,
            }
            if not access.is_protected:
                facts["token"] = access.local_token
            proxies = ",".join(console.proxies)
            server.serve(
                opened,
                access,
                listening,
                on_start=lambda: _show_start(facts, as_json),
                proxies=proxies,
                sign_in=sign_in,
                audit_reads=console.audit_reads,
            )
    except server.Exposed as error:
        fail(BAD_INPUT, str(error), "set REDRIVE_CONSOLE_PASSWORD or REDRIVE_CONSOLE_TOKEN")
    except LedgerError as error:
        fail_without_ledger(error)
    except OSError as error:
        problem = f"console: cannot listen there ({error.strerror or error})"
        fail(BAD_INPUT, f"{problem}; --port 0 takes any free port")
    except (Unreadable, ValueError, TypeError, ImportError) as error:
        fail(BAD_INPUT, str(error))


def _show_hash(kind: Literal["password", "token"], as_json: bool) -> None:
    if kind == "token":
        token = new_token()
        secret = {"token": token, "hash": hashed_token(token)}
    else:
        secret = {"hash": str(Password.create(_read_password()))}
    if as_json:
        print_json(secret)
    elif "token" in secret:
        show(f"token  {secret['token']}\nhash   {secret['hash']}")
    else:
        print(secret["hash"])  # alone on its line, for `$(...)`


def _read_password() -> str:
    """Read a password: typed twice without echo, or the first line of a pipe."""
    if sys.stdin.isatty():
        password: str = typer.prompt(
            "Password", hide_input=True, confirmation_prompt=True, err=True
        )
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < SHORTEST_PASSWORD:
        fail(BAD_INPUT, f"password: too short; use at least {SHORTEST_PASSWORD} characters")
    return password


def _show_start(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts), flush=True)
        return
    access = "password or token required" if facts["guarded"] else "this machine only"
    read_only = ", read-only" if facts["read_only"] else ""
    address = facts["url"] if facts["guarded"] else f"{facts['url']}?token={facts['token']}"
    show(f"Console for {facts['ledger']}: {address} ({access}{read_only}). Ctrl+C stops it.")
