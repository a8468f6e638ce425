"""Gate: what every request passes before a page sees it: whose it is, whether it is meant, and what browsers are told."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from ..ops.actor import user
from .access import Access, Who

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "redrive_session"
MOST = 1_000_000
"""Bytes of a body. Forms are small."""
FIELDS = 20_000
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
OPEN = ("/login", "/health", "/ready", "/static/")
"""For everybody: without these nobody could come in."""
STRANGE = (
    "This did not come from a page of this console, or from one that is too old: go back, load it anew, and try again. "
    "If a proxy stands before it, let it pass the Host header on as it came."
)
BETWEEN = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers of proxies: who comes through one is not at this machine, though the proxy may be."""
SECURITY = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Gate:
    """Stands before the whole console, so that no page can forget to ask. Event loops may share one."""

    def __init__(self, app: ASGI, access: Access) -> None:
        self.app = app
        self._access = access
        self._here = access.here(user())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there are none here, and nobody was asked who they are
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = path_of(scope)

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
                # What is static is asked for again: an upgrade must not meet the style or the script of the version before.
                headers.setdefault("cache-control", "no-cache" if path.startswith("/static/") else "no-store")
            await send(message)

        refused, receive = await self._refused(scope, receive, path)
        await (self.app if refused is None else refused)(scope, receive, guarded)

    async def _refused(self, scope: Scope, receive: Receive, path: str) -> tuple[Response | None, Receive]:
        """Why it may not go on; None: it may. And the body, which was read where it had to be."""
        headers = Headers(scope=scope)
        if not self._access.guarded and not _local(scope, headers):
            said = "This console has no password or token, so it answers to its own machine only, as 127.0.0.1 or localhost."
            return refusal(path, 403, said), receive
        who = self._who(headers)
        state = scope.setdefault("state", {})
        state["who"], state["form"] = who, {}
        open_ = path.startswith(OPEN)
        if who is None and not open_:
            return self._unknown(scope, path), receive
        if scope["method"] in SAFE:
            return None, receive
        if who is not None and not who.may_act and path not in ("/logout", "/login"):
            return refusal(path, 403, f"{who.name} may look, and not act: this console is read-only for them."), receive
        body = await _body(receive)
        if body is None:
            return refusal(path, 413, f"That is more than {MOST:,} bytes, or it broke off."), receive
        if headers.get("content-type", "").partition(";")[0].strip() == "application/x-www-form-urlencoded":
            try:
                state["form"] = _fields(body)
            except ValueError:
                return refusal(path, 413, f"That is more than {FIELDS:,} fields."), receive
        if not self._meant(who, headers, state["form"]):
            return refusal(path, 403, STRANGE), receive
        return None, _replayed(body)

    def _who(self, headers: Headers) -> Who | None:
        if not self._access.guarded:
            return self._here
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return self._access.by_token(token.strip(), _words(headers.get("redrive-actor", "")))
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        return None if not cookie else self._access.session(cookie)

    def _unknown(self, scope: Scope, path: str) -> Response:
        if not api(path) and self._access.by_password and scope["method"] in SAFE and path != "/live":
            asked = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
            to = f"{scope.get('root_path', '')}/login"
            return RedirectResponse(to if path == "/" else f"{to}?next={quote(asked, safe='')}", 303)
        said = "Say who you are: a token as `Authorization: Bearer …`" + (", or sign in." if self._access.by_password else ".")
        answer = refusal(path, 401, said)
        answer.headers["www-authenticate"] = 'Bearer realm="redrive"'
        return answer

    def _meant(self, who: Who | None, headers: Headers, form: dict[str, str]) -> bool:
        """Whether it was sent by a page of ours, and not by another site in the same browser. A token cannot be."""
        if who is not None and who.by == "token":
            return True
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != headers.get("host", "").lower():
            return False
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        # Who signs in has no session yet. A token of ours there would be a thing to try passwords on, without asking us.
        return who is None or self._access.is_csrf(who.session, headers.get("x-csrf-token") or form.get("csrf", ""))


def path_of(scope: Scope, /) -> str:
    """The path within the console, wherever it is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def api(path: str, /) -> bool:
    """Whether a program is asking, not a person."""
    return path.startswith("/api/")


def refusal(path: str, status: int, said: str, /) -> Response:
    """A short answer; for programs as application/problem+json."""
    if api(path):
        told = {"title": HTTPStatus(status).phrase, "status": status, "detail": said}
        return JSONResponse(told, status, media_type="application/problem+json")
    return PlainTextResponse(f"{said}\n", status)


def _local(scope: Scope, headers: Headers) -> bool:
    """From this machine, and meant for it: a name of somebody else's that leads here is not (DNS rebinding)."""
    if any(name in headers for name in BETWEEN):
        return False
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:  # half an IPv6 address
        return False
    client = scope.get("client")
    return _loopback(host) and (client is None or _loopback(client[0]))


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _words(header: str) -> str:
    """A header as it was meant: programs send UTF-8."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


async def _body(receive: Receive) -> bytes | None:
    """All of it; None: it is too much, or not all of it came."""
    found = bytearray()
    while True:
        message = await receive()
        found += message.get("body", b"")
        if len(found) > MOST or message["type"] != "http.request":
            return None
        if not message.get("more_body"):
            return bytes(found)


def _fields(body: bytes) -> dict[str, str]:
    """The fields of a form; of one that comes twice, the values in lines."""
    found: dict[str, str] = {}
    text = body.decode(errors="replace").replace("%00", "")  # Postgres has no NUL in its texts
    for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS):
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def _replayed(body: bytes) -> Receive:
    sent = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
