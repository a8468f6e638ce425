"""The middleware in front of the console: authentication, request checks and security headers."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from ...ops.context import user
from ...ops.sign_in.hashes import redact_text
from ...ops.sign_in.sessions import AccessStore
from ...ops.sign_in.tokens import PREFIX
from .credentials import AccessControl, Identity, name_of
from .host import WhoFailed
from .proxy import ProxyHeaderInvalid
from .sign_in import SignIn

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
ProblemPage: TypeAlias = Callable[[Scope, int, str], Response]
"""Makes the page of an error from the scope, the status and the explanation."""

T = TypeVar("T")
LOG = logging.getLogger("redrive.console")
SESSION_COOKIE = "redrive_session"
DEVICE_COOKIE = "redrive_device"
BROWSER_COOKIE = "redrive_browser"
"""Random, for users whom another program has authenticated. Their CSRF token is derived from it."""
PROVIDER_PREFIX = "oidc."
"""Of the cookie of a session that a provider has authenticated. The rest is random."""
BROWSER_COOKIE_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")
LOCAL_COOKIE = "redrive_local"
"""Followed by the port, because a browser shares cookies between all ports of a machine."""
MAX_BODY_BYTES, MAX_FORM_FIELDS = 1_000_000, 20_000
MAX_LOGIN_BYTES, MAX_LOGIN_FIELDS = 8_192, 10
"""Limits of a form before the login."""
BODY_SECONDS = 30.0
"""Time within which a request body must arrive."""
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
PROBE_PATHS = ("/health", "/ready", "/static/")
"""Paths that are the same for everyone."""
PUBLIC_PATHS = ("/login", *PROBE_PATHS)
"""Paths that need no login."""
FOREIGN_REQUEST = (
    "The request did not come from a current page of this console. "
    "Go back, reload the page and retry. "
    "A proxy in front of the console must pass the Host header unchanged."
)
NOT_LOCAL = (
    "This console has no password or token. "
    "It only accepts requests from its own machine, to 127.0.0.1 or localhost."
)
STORE_UNAVAILABLE = "The ledger cannot be reached, so your sign-in cannot be checked."
WHO_FAILED = "Sign-in failed with an unexpected error. See the log of the console."
UNKNOWN_LOCAL_USER = (
    "This console has no password, so its URL needs a token. "
    "Open the URL that `redrive serve` printed, or the one in the log of the server."
)
PROXY_HEADERS = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
)
"""A request through a proxy is not from this machine, even if the proxy is."""
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class StoreUnavailable(Exception):
    """A session or a token cannot be checked."""


class RequestRefused(Exception):
    """A check failed. The response says why."""

    def __init__(self, path: str, status: int, detail: str) -> None:
        super().__init__(detail)
        self.response = error_response(path, status, detail)


class SecurityMiddleware:
    """Checks every request before a page sees it. Event loops may share one."""

    def __init__(
        self,
        app: ASGI,
        access: AccessControl,
        store: AccessStore,
        render: ProblemPage,
        sign_in: SignIn,
    ) -> None:
        """Put the checks in front of an application.

        Args:
            app: The application.
            access: The passwords, tokens and roles.
            store: The sessions and named tokens in the ledger.
            render: Makes the page that explains why a request was rejected.
            sign_in: The programs that authenticate users.
        """
        self.app = app
        self.access = access
        self._store = store
        self._render = render
        self._sign_in = sign_in
        self._logged_url = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "websocket":  # the console has none, and this one is not authenticated
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = console_path(scope)

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                # Browsers revalidate static files, so that an upgrade brings its own.
                caching = "no-cache" if path.startswith("/static/") else "no-store"
                headers.setdefault("cache-control", caching)
                if new_cookie := scope["state"].get("new_browser"):
                    headers.append("set-cookie", _browser_cookie_header(scope, new_cookie))
            await send(message)

        try:
            response, receive = await self._check(scope, receive, path)
        except RequestRefused as refused:
            response = refused.response
        await (self.app if response is None else response)(scope, receive, send_with_headers)

    async def _check(
        self, scope: Scope, receive: Receive, path: str
    ) -> tuple[Response | None, Receive]:
        """Check one request, and store its identity and its form in the scope.

        Returns:
            The response if the request ends here, and the body for the app.

        Raises:
            RequestRefused: The request is not allowed.
        """
        headers = Headers(scope=scope)
        is_safe = scope["method"] in SAFE_METHODS
        state = scope.setdefault("state", {})
        state["identity"], state["form"] = None, {}
        if not self.access.is_protected:
            if not _is_local(scope, headers):
                raise RequestRefused(path, 403, NOT_LOCAL)
            if is_safe and (redirect := self._exchange_token(scope, headers, path)):
                return redirect, receive
        try:
            is_probe = path.startswith(PROBE_PATHS)
            identity = None if is_probe else await self._identify(scope, headers, path)
            state["identity"] = identity
        except ProxyHeaderInvalid as error:
            raise RequestRefused(path, 400, f"Sign-in failed: {error}.") from None
        except WhoFailed:
            return self._show_problem(scope, path, 500, WHO_FAILED), receive
        except StoreUnavailable:
            return self._show_problem(scope, path, 503, STORE_UNAVAILABLE), receive
        if identity is None and not path.startswith(PUBLIC_PATHS):
            return self._ask_for_login(scope, path), receive
        if is_safe:
            return None, receive
        if identity is not None and not identity.may_act and path not in ("/logout", "/login"):
            raise RequestRefused(path, 403, f"{identity.name} has read-only access.")
        body, state["form"] = await _read_body(receive, headers, path, identity is not None)
        if not self._is_same_origin(identity, headers, state["form"]):
            raise RequestRefused(path, 403, FOREIGN_REQUEST)
        return None, _receive_again(body)

    async def _identify(self, scope: Scope, headers: Headers, path: str) -> Identity | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip() if scheme.lower() == "bearer" else ""
        cookies = cookie_parser(headers.get("cookie", ""))
        actor = _as_utf8(headers.get("redrive-actor", ""))
        if not self.access.is_protected:
            if token and self.access.is_local_token(token):
                return self.access.local_identity(name_of(actor) or user(), by="token")
            if token:
                return await self._find_token(token)
            has_cookie = self.access.is_local_cookie(cookies.get(_local_cookie_name(headers), ""))
            return self.access.local_identity(user()) if has_cookie else None
        if token:
            identity = self.access.check_token(token, actor) or await self._find_token(token)
            if identity is not None:
                return identity
        guest, way = await self._sign_in.identify(scope)
        if guest is not None:
            browser = _browser_of(scope, cookies, path)
            return self.access.user_identity(guest, by=way, browser=browser)
        return None if token else await self._read_session(cookies.get(SESSION_COOKIE, ""))

    async def _read_session(self, cookie: str) -> Identity | None:
        """Return the identity of a session that the ledger has, signed by us or by a provider."""
        by_provider = self._sign_in.oidc is not None and cookie.startswith(PROVIDER_PREFIX)
        identity = None if by_provider else self.access.read_session(cookie)
        if identity is None and not by_provider:
            return None
        stored = await self._look_up(self._store.find_session, cookie)
        if stored is None:
            return None
        return self.access.stored_identity(stored, cookie) if by_provider else identity

    async def _find_token(self, text: str) -> Identity | None:
        """Return the identity of a named token."""
        if not text.startswith(PREFIX):
            return None
        stored = await self._look_up(self._store.find_token, text)
        return None if stored is None else self.access.named_token_identity(stored)

    async def _look_up(self, find: Callable[[str], T], text: str) -> T:
        """Ask the ledger. StoreUnavailable: it cannot be reached, so no request is let in."""
        try:
            return await run_in_threadpool(find, text)
        except Exception as error:
            problem = redact_text(f"{type(error).__name__}: {error}").partition("\n")[0]
            LOG.error("console: sessions and tokens cannot be checked (%s)", problem)
            raise StoreUnavailable from error

    def _exchange_token(self, scope: Scope, headers: Headers, path: str) -> Response | None:
        """Replace the token of the printed URL by a cookie, and remove it from the URL."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = next((value for name, value in query if name == "token"), None)
        if token is None or not self.access.is_local_token(token):
            return None
        remaining = urlencode([(name, value) for name, value in query if name != "token"])
        root = scope.get("root_path", "")
        url = f"{root}{quote(path)}" + (f"?{remaining}" if remaining else "")
        response = RedirectResponse(url, 303)
        response.set_cookie(
            _local_cookie_name(headers),
            self.access.local_cookie(),
            path=root or "/",
            httponly=True,
            samesite="lax",
        )
        return response

    def _ask_for_login(self, scope: Scope, path: str) -> Response:
        root = scope.get("root_path", "")
        if not self.access.is_protected:
            self._log_url(scope, root)
            return _unauthorized_response(path, UNKNOWN_LOCAL_USER)
        is_page = is_page_request(scope, path)
        query = scope["query_string"].decode("latin-1")
        # Of `//other.example` a login of the host application could make another site.
        page = f"/{quote(path.lstrip('/'))}"
        page = f"{page}?{query}" if query else page
        if is_page:
            login = self._sign_in.login_url_of(root, page, has_form=self.access.has_passwords)
            if login is not None:
                return RedirectResponse(login, 303)
            if self._sign_in.has_users:
                return self._show_problem(scope, path, 401, self._sign_in.explanation)
        ending = " or sign in." if self.access.has_passwords else "."
        detail = "Authentication required. Send a token as `Authorization: Bearer …`"
        return _unauthorized_response(path, f"{detail}{ending}")

    def _show_problem(self, scope: Scope, path: str, status: int, detail: str) -> Response:
        if is_page_request(scope, path):
            return self._render(scope, status, detail)
        return error_response(path, status, detail)

    def _log_url(self, scope: Scope, root: str) -> None:
        """Log the URL with its token once. Only the account of the server can read the log."""
        if not self._logged_url:
            self._logged_url = True
            host = Headers(scope=scope).get("host", "127.0.0.1")
            origin = f"{scope.get('scheme', 'http')}://{host}"
            url = f"{origin}{root}/?token={self.access.local_token}"
            LOG.warning("the console has no password; open %s on this machine", url)

    def _is_same_origin(
        self, identity: Identity | None, headers: Headers, form: dict[str, str]
    ) -> bool:
        """Whether a page of this console sent the request, not another site in the same browser.

        Other sites cannot send a bearer token.
        """
        if identity is not None and identity.by == "token":
            return True
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != host:
            return False
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        # A login has no session yet. A token on the login page could be used to guess passwords
        # offline.
        if identity is None:
            return True
        token = headers.get("x-csrf-token") or form.get("csrf", "")
        return self.access.is_csrf_token(identity.session, token)


def console_path(scope: Scope, /) -> str:
    """Return the path within the console, independent of where it is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) or "/"


def is_api(path: str, /) -> bool:
    """Whether a program sends the request, not a person."""
    return path.startswith("/api/")


def is_page_request(scope: Scope, path: str, /) -> bool:
    """Whether a person opens a page, who can be shown one or sent to a login."""
    return not is_api(path) and path != "/live" and scope["method"] in SAFE_METHODS


def error_response(path: str, status: int, detail: str, /) -> Response:
    """Return a short error. The API gets application/problem+json."""
    if is_api(path):
        problem = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
        return JSONResponse(problem, status, media_type="application/problem+json")
    return PlainTextResponse(f"{detail}\n", status)


def _unauthorized_response(path: str, detail: str) -> Response:
    response = error_response(path, 401, detail)
    response.headers["www-authenticate"] = 'Bearer realm="redrive"'
    return response


def _is_local(scope: Scope, headers: Headers) -> bool:
    """Whether the request comes from this machine and names it.

    Another name that resolves to this machine is rejected (DNS rebinding).
    """
    if any(name in headers for name in PROXY_HEADERS):
        return False
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:  # an incomplete IPv6 address
        return False
    client = scope.get("client")
    return _is_loopback(host) and (client is None or _is_loopback(client[0]))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _as_utf8(header: str) -> str:
    """Decode a header as UTF-8, which programs send."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


async def _read_body(
    receive: Receive, headers: Headers, path: str, is_logged_in: bool
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the fields of a form. RequestRefused: it is late or too large."""
    if is_logged_in:
        max_bytes, max_fields = MAX_BODY_BYTES, MAX_FORM_FIELDS
    else:
        max_bytes, max_fields = MAX_LOGIN_BYTES, MAX_LOGIN_FIELDS
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _receive_all(receive, max_bytes)
    except TimeoutError:
        detail = f"The request body did not arrive within {BODY_SECONDS:.0f} s."
        raise RequestRefused(path, 408, detail) from None
    if body is None:
        detail = f"The request body is incomplete or larger than {max_bytes:,} bytes."
        raise RequestRefused(path, 413, detail)
    media_type = headers.get("content-type", "").partition(";")[0].strip()
    if media_type != "application/x-www-form-urlencoded":
        return body, {}
    try:
        return body, parse_form(body, max_fields)
    except ValueError:
        detail = f"The form has more than {max_fields:,} fields."
        raise RequestRefused(path, 413, detail) from None


async def _receive_all(receive: Receive, max_bytes: int) -> bytes | None:
    """Return the whole body, or None if it is too large or incomplete."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > max_bytes or message["type"] != "http.request":
            return None
        if not message.get("more_body"):
            return bytes(body)


def parse_form(body: bytes, max_fields: int) -> dict[str, str]:
    """Return the fields of a form. The values of a repeated field are joined by newlines.

    Raises:
        ValueError: The form has more fields than allowed.
    """
    fields: dict[str, list[str]] = {}
    text = body.decode(errors="replace").replace("%00", "")  # Postgres cannot store NUL
    for name, value in parse_qsl(text, keep_blank_values=True, max_num_fields=max_fields):
        fields.setdefault(name, []).append(value)
    return {name: "\n".join(values) for name, values in fields.items()}


def _browser_cookie_name(scope: Scope) -> str:
    """Return the name of the cookie. Under https, no other host of the domain can set it."""
    return f"__Host-{BROWSER_COOKIE}" if scope.get("scheme") == "https" else BROWSER_COOKIE


def _browser_of(scope: Scope, cookies: dict[str, str], path: str) -> str:
    """Return the random text that the browser has as a cookie, or a new one for its next page."""
    text = cookies.get(_browser_cookie_name(scope), "")
    if BROWSER_COOKIE_TEXT.fullmatch(text):
        return text
    text = secrets.token_urlsafe(32)
    if is_page_request(scope, path):
        scope["state"]["new_browser"] = text
    return text


def _browser_cookie_header(scope: Scope, text: str) -> str:
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{_browser_cookie_name(scope)}={text}; HttpOnly; Path=/; SameSite=Strict{secure}"


def _local_cookie_name(headers: Headers) -> str:
    port = headers.get("host", "").rpartition(":")[2]
    return f"{LOCAL_COOKIE}_{port}" if port.isdecimal() else LOCAL_COOKIE


def _receive_again(body: bytes) -> Receive:
    """Return a receive function for a body that was already read."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> MutableMapping[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    return receive
