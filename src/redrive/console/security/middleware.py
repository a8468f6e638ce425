"""Gate: what every request passes before a page sees it: whose it is, whether it is meant, and what browsers are told."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from ...ops.actor import user
from ...ops.sessions import RevokedSessions
from .credentials import Access, Who

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("redrive.console")
COOKIE = "redrive_session"
DEVICE_COOKIE = "redrive_device"
LOCAL_COOKIE = "redrive_local"
"""Followed by the port: a browser has one set of cookies for all ports of a machine."""
MOST = 1_000_000
"""Bytes of a body. Forms are small."""
FIELDS = 20_000
LOGIN_BYTES, LOGIN_FIELDS = 8_192, 10
"""Of a form that comes before anybody has signed in."""
BODY_SECONDS = 30.0
"""Within which a body has to arrive."""
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
OPEN = ("/login", "/health", "/ready", "/static/")
"""For everybody: without these nobody could come in."""
STRANGE = (
    "The request did not come from a current page of this console. Go back, reload the page and retry. "
    "A proxy in front of the console must pass the Host header unchanged."
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

    def __init__(self, app: ASGI, access: Access, revoked: RevokedSessions) -> None:
        self.app = app
        self.access = access
        self._revoked = revoked
        self._invited = False

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
        if not self.access.guarded and not _local(scope, headers):
            said = (
                "This console has no password or token. It only accepts requests from its own machine, to 127.0.0.1 or localhost."
            )
            return refusal(path, 403, said), receive
        if not self.access.guarded and scope["method"] in SAFE and (entered := self._entered(scope, headers, path)):
            return entered, receive
        who = await self._who(headers)
        state = scope.setdefault("state", {})
        state["who"], state["form"] = who, {}
        open_ = path.startswith(OPEN)
        if who is None and not open_:
            return self._unknown(scope, path), receive
        if scope["method"] in SAFE:
            return None, receive
        if who is not None and not who.may_act and path not in ("/logout", "/login"):
            return refusal(path, 403, f"{who.name} has read-only access."), receive
        most, fields = (LOGIN_BYTES, LOGIN_FIELDS) if who is None else (MOST, FIELDS)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(receive, most)
        except TimeoutError:
            return refusal(path, 408, f"The request body did not arrive within {BODY_SECONDS:.0f} s."), receive
        if body is None:
            return refusal(path, 413, f"The request body is incomplete or larger than {most:,} bytes."), receive
        if headers.get("content-type", "").partition(";")[0].strip() == "application/x-www-form-urlencoded":
            try:
                state["form"] = _fields(body, fields)
            except ValueError:
                return refusal(path, 413, f"The form has more than {fields:,} fields."), receive
        if not self._meant(who, headers, state["form"]):
            return refusal(path, 403, STRANGE), receive
        return None, _replayed(body)

    async def _who(self, headers: Headers) -> Who | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        cookies = cookie_parser(headers.get("cookie", ""))
        if not self.access.guarded:
            if scheme.lower() == "bearer" and self.access.is_local_token(token.strip()):
                return self.access.here(user(), by="token")
            return self.access.here(user()) if self.access.is_local_cookie(cookies.get(_local_cookie(headers), "")) else None
        if scheme.lower() == "bearer" and token:
            return self.access.by_token(token.strip(), _words(headers.get("redrive-actor", "")))
        cookie = cookies.get(COOKIE)
        who = None if not cookie else self.access.session(cookie)
        if who is None or await run_in_threadpool(self._revoked.is_revoked, who.session):
            return None
        return who

    def _entered(self, scope: Scope, headers: Headers, path: str) -> Response | None:
        """The token of the printed address becomes a cookie, and leaves the address."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == "token"), None)
        if given is None or not self.access.is_local_token(given):
            return None
        left = urlencode([(name, value) for name, value in query if name != "token"])
        to = RedirectResponse(f"{scope.get('root_path', '')}{quote(path)}" + (f"?{left}" if left else ""), 303)
        root = scope.get("root_path", "") or "/"
        to.set_cookie(_local_cookie(headers), self.access.local_cookie(), path=root, httponly=True, samesite="lax")
        return to

    def _unknown(self, scope: Scope, path: str) -> Response:
        if not self.access.guarded:
            return self._invitation(scope, path)
        if not api(path) and self.access.by_password and scope["method"] in SAFE and path != "/live":
            asked = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
            to = f"{scope.get('root_path', '')}/login"
            return RedirectResponse(to if path == "/" else f"{to}?next={quote(asked, safe='')}", 303)
        sign_in = " or sign in." if self.access.by_password else "."
        said = f"Authentication required. Send a token as `Authorization: Bearer …`{sign_in}"
        answer = refusal(path, 401, said)
        answer.headers["www-authenticate"] = 'Bearer realm="redrive"'
        return answer

    def _invitation(self, scope: Scope, path: str) -> Response:
        """How the account that runs the server gets in: by an address that only its log has."""
        if not self._invited:
            self._invited = True
            host = Headers(scope=scope).get("host", "127.0.0.1")
            address = f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}/?token={self.access.local_token}"
            LOG.warning("the console has no password; open %s on this machine", address)
        said = (
            "This console has no password, so its URL needs a token. "
            "Open the URL that `redrive serve` printed, or the one in the log of the server."
        )
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
        return who is None or self.access.is_csrf(who.session, headers.get("x-csrf-token") or form.get("csrf", ""))


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


async def _body(receive: Receive, most: int) -> bytes | None:
    """All of it; None: it is too much, or not all of it came."""
    found = bytearray()
    while True:
        message = await receive()
        found += message.get("body", b"")
        if len(found) > most or message["type"] != "http.request":
            return None
        if not message.get("more_body"):
            return bytes(found)


def _fields(body: bytes, most: int) -> dict[str, str]:
    """The fields of a form; of one that comes several times, the values in lines. ValueError: there are too many."""
    found: dict[str, list[str]] = {}
    text = body.decode(errors="replace").replace("%00", "")  # Postgres has no NUL in its texts
    for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=most):
        found.setdefault(name, []).append(value)
    return {name: "\n".join(values) for name, values in found.items()}


def _local_cookie(headers: Headers) -> str:
    port = headers.get("host", "").rpartition(":")[2]
    return f"{LOCAL_COOKIE}_{port}" if port.isdecimal() else LOCAL_COOKIE


def _replayed(body: bytes) -> Receive:
    sent = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
